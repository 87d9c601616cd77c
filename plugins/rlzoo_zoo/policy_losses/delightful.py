"""Delightful policy gradient: rare successes count in full, rare failures hardly at all."""

from typing import Annotated

import torch

from rlzoo import Range, hookimpl


def delightful(
    log_probs,
    advantages,
    *,
    eta: Annotated[float, Range(0, closed="right")] = 1.0,
):
    """-sg(sigmoid(-A log pi / eta)) A log pi per token (B, T).

    Delight is the advantage times the surprise -log pi, of the policy as it is. Likely tokens get
    half of REINFORCE's gradient whatever their advantage; an unlikely token gets all of it if it
    was good and none if it was bad. No ratio: the paper claims none is needed, also on old data.
    eta is in units of A times nats: whiten. Large eta leaves half of `reinforce`. Breaks where bad
    habits are rare: they are never unlearned. Read: the abstract, algorithm 1 and eta = 1 as
    summaries and several reimplementations give them alike; not the paper's proofs.
    Source: Osband 2026, arXiv:2603.14608.
    """
    weight = torch.sigmoid(-advantages * log_probs.detach() / eta)
    return -weight * advantages * log_probs, {"pg_weight": weight}


@hookimpl
def register_policy_losses(register):
    register(delightful, needs_signal=True)
