"""k1 to a teacher: on-policy distillation as a reward, under any estimator."""

from rlzoo import hookimpl


def teacher_k1(log_probs, teacher_log_probs):
    """log pi - log q per token (B, T), in nats; its mean under pi is KL(pi, q), q the teacher.

    As `k1`, with a frozen teacher (`teacher.path`) in the reference's place: with kl.place=reward
    each token's reward has coef (log q - log pi) added to it, whatever the estimator. As a loss its
    expected gradient is zero.
    Source: Schulman 2020, "Approximating KL divergence"; Lu and Thinking Machines Lab 2025,
    "On-policy distillation".
    """
    return log_probs - teacher_log_probs


@hookimpl
def register_kl_penalties(register):
    register(
        teacher_k1,
        caution={
            "kl.place = loss": "its expected gradient is zero: it does nothing there but add noise",
        },
    )
