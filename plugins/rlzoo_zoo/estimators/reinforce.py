"""REINFORCE: the discounted reward-to-go, without a baseline."""

from rlzoo import Discount, component
from rlzoo.ops import reward_to_go


@component("estimator")
def reinforce(
    rewards,
    response_mask,
    *,
    gamma: Discount = 1.0,
):
    """A_t = sum_k gamma^k r_{t+k} over the actions from t on, (B, T).

    It is unbiased if episodes terminate, and has the highest variance, because nothing is
    subtracted. After a truncated response, the future reward counts as 0, since there is no critic.
    REINFORCE++ (arXiv:2501.03262) is a recipe with this estimator: k1 in the reward, whitening over
    the batch; verl's function of that name whitens internally. It fails with rewards of one sign
    and no whitening, because every sampled token is then pushed in the same direction.
    Source: Williams 1992, doi:10.1007/BF00992696.
    """
    return reward_to_go(rewards, response_mask, gamma=gamma)
