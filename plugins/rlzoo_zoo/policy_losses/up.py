"""UP: no clip for what did better than expected, PPO's clip for what did worse."""

from typing import Annotated

import torch

from rlzoo import Range, hookimpl


def up(
    log_probs,
    old_log_probs,
    advantages,
    *,
    clip_low: Annotated[float, Range(0, 1)] = 0.2,
):
    """-A pi / sg(pi) where A > 0, else -min(rho A, clip(rho, 1 - clip_low) A), per token (B, T).

    Good tokens get REINFORCE's gradient -A grad log pi whatever their ratio, so that a right but
    unlikely token is never cut off; bad ones stop once their ratio is below 1 - clip_low. There a
    bound above never binds, so it has no option. Breaks with old data: nothing holds good tokens
    near the policy that sampled, and a bad token of large rho is unbounded (verl's form adds dual
    clipping, as its `vanilla` does; not here). log rho is held below 20, as in verl. Read: TRL's
    `UPTrainer` with the paper's equation numbers, a copy of verl's pull request, an early draft by
    the authors; the paper's own text could not be had.
    Source: Fan et al. 2026, arXiv:2607.06987.
    """
    ratio = (log_probs - old_log_probs).clamp(max=20).exp()
    clipped = -torch.minimum(ratio * advantages, ratio.clamp(min=1 - clip_low) * advantages)
    anchored = (log_probs - log_probs.detach()).exp()  # 1, with the gradient of log pi
    loss = torch.where(advantages > 0, -advantages * anchored, clipped)
    low = ((ratio < 1 - clip_low) & (advantages < 0)).to(loss.dtype)
    return loss, {"pg_clipfrac_low": low, "pg_clipfrac": low}


@hookimpl
def register_policy_losses(register):
    register(up, needs_signal=True)
