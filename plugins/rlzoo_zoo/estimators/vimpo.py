"""VIMPO's advantage: how far the policy has come to prefer a token, as a TD error of its own value."""

from typing import Annotated

from rlzoo import Range, hookimpl
from rlzoo.ops import reward_to_go


def vimpo(
    old_log_probs,
    ref_log_probs,
    full_kl,
    response_mask,
    *,
    beta: Annotated[float, Range(0, closed="neither"), "of the loss, too"] = 5e-4,
    lam: Annotated[float, Range(0, 1)] = 1.0,
):
    """A_t = sum_k lam^k d_{t+k}, d_t = beta (log(pi / pi_ref) - KL_t(pi, pi_ref)), (B, T).

    Under KL regularisation the best policy knows its value: V_t = V_{t+1} - d_t with V = 0 at the
    end (undiscounted, one reward at the end), so d is the TD error of the value that the policy
    implies, and GAE sums it. No reward is read here: it enters by the loss `vimpo`, which ties
    the sum of d to it; take the two together, of one beta, with whiten=batch (the authors'
    variance is the sample's, whiten_ddof=1). Zero until the policy has left its reference. Breaks
    without that loss: it then repeats what the policy does already.
    Source: Kang et al. 2026, arXiv:2606.20008: abstract, and the authors' code
    (compute_detached_vimpo_ppo_targets), which takes pi of now where this takes that of the
    rollout: the same in a batch's first step.
    """
    delta = beta * (old_log_probs - ref_log_probs - full_kl)
    return reward_to_go(delta, response_mask, gamma=lam)


@hookimpl
def register_estimators(register):
    register(vimpo)
