"""What a run's evaluations decide: which of them was best, and whether training ends early.

All of it is a function of the lines of metrics.jsonl, so that a resumed run decides as one that
was never interrupted.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rlzoo.rollout.evaluation import headline

KL = "actor/ref_kl_per_response"  # of a step's line, where one of these columns is asked for:


def best(evaluations: Iterable[Mapping[str, Any]]) -> Mapping[str, Any]:
    """The evaluation with the highest headline; of equals the earliest."""
    return max(evaluations, key=lambda found: headline(found)[1])  # the first of equals


def reason(
    stop: Any, evaluations: Sequence[Mapping[str, Any]], last: Mapping[str, Any] | None
) -> str | None:
    """Why training ends now, in words; None where it goes on.

    stop: the recipe's section; evaluations: so far, the one before training first; last: the last
    step's line, None before the first. The rule on the KL comes first: an evaluation that is made
    because of it cannot change the answer.
    """
    if stop.max_kl is not None and last is not None and last[KL] > stop.max_kl:
        return f"KL to the reference {last[KL]:.3g} nats per response, over {stop.max_kl:g}"
    what, value, *_ = headline(evaluations[-1])
    if stop.target is not None and value >= stop.target:
        return f"{what} {value:.3f} reached the target {stop.target:g}"
    if stop.patience is not None:
        mark, since = headline(evaluations[0])[1], 0
        for found in evaluations[1:]:
            value = headline(found)[1]
            if value > mark and value >= mark + stop.min_delta:
                mark, since = value, 0
            else:
                since += 1
        if since >= stop.patience:
            least = f" by {stop.min_delta:g}" if stop.min_delta else ""
            return f"{what} no better than {mark:.3f}{least} in {since} evaluations"
    return None
