"""On-policy distillation: the teacher's log-prob of each chosen token minus the student's."""

from rlzoo import Discount, component
from rlzoo.ops import reward_to_go


@component("estimator")
def opd(teacher_log_probs, old_log_probs, response_mask, *, gamma: Discount = 0.0):
    """A_t = sum_k gamma^k (log q - log p)_{t+k} over the actions from t on, (B, T), in nats.

    q is the frozen teacher (`teacher.path`), p the policy at rollout. At gamma = 0, the published
    setting, each token is evaluated separately, and the mean of A grad log p under p is minus the
    gradient of KL(p, q) at the states that the student visits. This is GKD's objective with only
    student samples and the reverse KL (Agarwal et al. 2023, arXiv:2306.13649), estimated from one
    token instead of the whole vocabulary. gamma = 1 includes the consequences of a token and gives
    the gradient of the response's KL. Scores are not used. It fails when the student never does
    what the teacher would do, because tokens that it does not sample get no signal. The authors'
    code takes p from the sampler, as does `rollout.old_log_probs=sampled`.
    Source: Lu and Thinking Machines Lab 2025, "On-policy distillation"; checked against
    tinker_cookbook/distillation/train_on_policy.py.
    """
    return reward_to_go(teacher_log_probs - old_log_probs, response_mask, gamma=gamma)
