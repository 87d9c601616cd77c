"""Delightful policy gradient: rare successes count in full, but rare failures hardly count."""

from typing import Annotated

import torch

from rlzoo import Range, component


@component("policy_loss", needs_signal=True)
def delightful(
    log_probs,
    advantages,
    *,
    eta: Annotated[float, Range(0, closed="right")] = 1.0,
):
    """-sg(sigmoid(-A log pi / eta)) A log pi per token (B, T).

    Delight is the advantage times the surprise -log pi of the current policy. Likely tokens get
    half of REINFORCE's gradient at any advantage; an unlikely token gets all of it if it was good
    and none if it was bad. There is no ratio; the paper claims that none is needed, even on old
    data. eta is in units of A times nats, so use whitening. A large eta gives half of `reinforce`.
    It fails when bad behavior is rare, because it is never unlearned. This is based on the
    abstract, and on algorithm 1 and eta = 1 as given by summaries and several reimplementations,
    not on the paper's proofs.
    Source: Osband 2026, arXiv:2603.14608.
    """
    weight = torch.sigmoid(-advantages * log_probs.detach() / eta)
    return -weight * advantages * log_probs, {"pg_weight": weight}
