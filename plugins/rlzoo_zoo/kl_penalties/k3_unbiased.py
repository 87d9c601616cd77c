"""k3 weighed by the importance ratio: as a loss it has the gradient of the KL, at any ratio."""

from rlzoo import hookimpl


def k3_unbiased(log_probs, ref_log_probs, old_log_probs):
    """rho (exp(-l) - 1 + l) with l = log pi - log pi_ref, rho = pi / pi_old, per token, in nats.

    The gradient runs through rho too, so that under pi_old the mean is the state's reverse KL and
    the mean gradient its gradient, also where rho is not 1. Plain k3 has the forward KL's, and
    where the policy has dropped a token that the reference likes it explodes; here rho makes up for
    it. At rollout rho is 1: in the reward it is k3. -l and log rho are held below 20. Read: the
    formula in two detailed summaries, TRL's `use_bias_correction_kl`, slime's code; not the report.
    Source: DeepSeek-AI 2025 (V3.2), arXiv:2512.02556; the weight after Tang and Munos 2025,
    arXiv:2506.09477.
    """
    gap = (ref_log_probs - log_probs).clamp(max=20)
    return (log_probs - old_log_probs).clamp(max=20).exp() * (gap.expm1() - gap)


@hookimpl
def register_kl_penalties(register):
    register(
        k3_unbiased,
        caution={
            "kl.place = reward": "its policy gradient is not that of the KL; only k1 gives "
            "that in the reward",
        },
    )
