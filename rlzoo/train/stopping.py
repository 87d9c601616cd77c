"""What a run's evaluations decide: which of them was best, and whether training ends early.

All of it is a function of the lines of metrics.jsonl, so that a resumed run decides as one that
was never interrupted.
"""

import json
import os
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rlzoo.evaluate import headline
from rlzoo.plan import Plan
from rlzoo.recipe import RecipeError

KL = "actor/ref_kl_per_response"  # of a step's line, where one of these columns is asked for:
REFERENCE = ("ref_log_probs", "full_kl")


def best(evaluations: Iterable[Mapping[str, Any]]) -> Mapping[str, Any]:
    """The evaluation with the highest headline; of equals the earliest."""
    return max(evaluations, key=lambda found: headline(found)[1])  # the first of equals


def refuse(plan: Plan) -> None:
    """Rules that could never be looked at are an error of the recipe."""
    recipe, config = plan.recipe, plan.recipe.config
    for key in ("patience", "target"):
        if config.stop[key] is not None and not config.eval.every:
            blame = recipe.blame(f"stop.{key}")
            raise RecipeError(f"{blame}: looks at evaluations, and eval.every is 0")
    if config.stop.max_kl is not None and plan.needs.isdisjoint(REFERENCE):
        blame = recipe.blame("stop.max_kl")
        raise RecipeError(f"{blame}: there is no reference to be far from; give kl.coef > 0")


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


def keep_best(place: Path, evaluation: Mapping[str, Any], save: Callable[[Path], None]) -> None:
    """Replace the folder `place` by what `save(folder)` writes, and best.json.

    On disk when it returns, so that a checkpoint that is written after it can rely on it.
    """
    mend_best(place)
    aside, former = _beside(place)
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir()
    save(aside)
    what, value, low, high = headline(evaluation)
    note = {"step": evaluation["step"], "metric": what, "value": value, "interval": [low, high]}
    (aside / "best.json").write_text(json.dumps(note, indent=1) + "\n", encoding="utf-8")
    for path in [*aside.rglob("*"), aside]:
        _sync(path)
    if place.exists():
        place.rename(former)
    aside.rename(place)
    _sync(place.parent)
    shutil.rmtree(former, ignore_errors=True)


def mend_best(place: Path) -> None:
    """A kill between the two renames left the former best under another name."""
    _, former = _beside(place)
    if former.exists() and not place.exists():
        former.rename(place)
    shutil.rmtree(former, ignore_errors=True)


def _beside(place: Path) -> tuple[Path, Path]:
    return place.with_name(f".{place.name}.partial"), place.with_name(f".{place.name}.former")


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
