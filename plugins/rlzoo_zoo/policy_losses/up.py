"""UP: PPO's clip only for tokens that did worse than expected."""

from typing import Annotated

import torch

from rlzoo import Range, component


@component("policy_loss", needs_signal=True)
def up(
    log_probs,
    old_log_probs,
    advantages,
    *,
    clip_low: Annotated[float, Range(0, 1)] = 0.2,
):
    """-A pi / sg(pi) where A > 0, else -min(rho A, clip(rho, 1 - clip_low) A), per token (B, T).

    Good tokens get REINFORCE's gradient -A grad log pi at any ratio, so that a correct but unlikely
    token is never clipped; bad ones stop once their ratio is below 1 - clip_low. An upper bound
    would have no effect there, so there is no option for it. It fails with old data: nothing keeps
    good tokens near the policy that sampled, and the loss of a bad token with large rho is
    unbounded (unlike this form, verl's adds dual clipping, as its `vanilla` does). log rho is
    clamped at 20, as in verl. This is based on TRL's `UPTrainer` with the paper's equation numbers,
    a copy of verl's pull request, and an early draft by the authors; the paper itself was not
    available.
    Source: Fan et al. 2026, arXiv:2607.06987.
    """
    ratio = (log_probs - old_log_probs).clamp(max=20).exp()
    clipped = -torch.minimum(ratio * advantages, ratio.clamp(min=1 - clip_low) * advantages)
    anchored = (log_probs - log_probs.detach()).exp()  # 1, with the gradient of log pi
    loss = torch.where(advantages > 0, -advantages * anchored, clipped)
    low = ((ratio < 1 - clip_low) & (advantages < 0)).to(loss.dtype)
    return loss, {"pg_clipfrac_low": low, "pg_clipfrac": low}
