"""k1 to a teacher: on-policy distillation as a reward, with any estimator."""

from rlzoo import component
from rlzoo_zoo.kl_penalties.k1 import NOISE


@component("kl_penalty", caution={"kl.place = loss": NOISE})
def teacher_k1(log_probs, teacher_log_probs):
    """log pi - log q per token (B, T), in nats; its mean under pi is KL(pi, q), where q is the
    teacher.

    It is `k1` with a frozen teacher (`teacher.path`) instead of the reference: with
    kl.place=reward, coef (log q - log pi) is added to each token's reward, for any estimator. As a
    loss, its expected gradient is zero.
    Source: Schulman 2020, "Approximating KL divergence"; Lu and Thinking Machines Lab 2025,
    "On-policy distillation".
    """
    return log_probs - teacher_log_probs
