"""An adaptive entropy bonus: it grows while entropy is low and is off while entropy is high."""

from typing import Annotated

from rlzoo import Range, RlzooError, component, masked_mean


@component("column", shape="BT", couples="batch")
def entropy_coef(
    old_entropy,
    response_mask,
    memory,
    *,
    start: Annotated[float, Range(0), "coefficient of the first step"] = 0.0,
    target: Annotated[float, Range(0), "target entropy in nats per token"] = 0.2,
    delta: Annotated[float, Range(0), "a step's change"] = 0.005,
    least: Annotated[float, Range(0)] = 0.0,
    most: Annotated[float, Range(0)] = 1.0,
):
    """The coefficient of an entropy bonus at each action, (B, T), in units of the loss per nat.

    After each step, c becomes min(c + delta, most) if the mean entropy of the batch's actions is at
    most `target`, else max(c - delta, least). A step's bonus is c if the entropy of the previous
    step was at most `target`, otherwise 0. `memory` keeps both between steps. The first bonus of a
    run is 0. The target matters: TRL's default of 0.2 affects only a nearly deterministic policy.
    This version changes c once per batch, based on the entropy at rollout; TRL changes it at each
    optimizer step. With one step per batch, they agree.
    Source: TRL, pull request 6140 (use_adaptive_entropy); after He et al. 2025, arXiv:2505.22312.
    """
    if least > most:
        raise RlzooError(f"column entropy_coef: least={least} exceeds most={most}")
    c, before = memory.get("entropy_coef", (start, None))
    bonus = 0.0 if before is None or before > target else c
    entropy = float(masked_mean(old_entropy, response_mask.bool()))
    c = min(c + delta, most) if entropy <= target else max(c - delta, least)
    memory["entropy_coef"] = [c, entropy]
    return bonus * response_mask
