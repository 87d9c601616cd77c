"""The options of `diagnose`: estimators, critics, batch sizes; no torch here."""

import argparse
from collections.abc import Sequence
from typing import Any

from rlzoo.errors import RlzooError, nearest
from rlzoo.plugin.border import Bound
from rlzoo.plugin.component import Component
from rlzoo.plugin.registry import Zoo
from rlzoo.recipe.compose import Recipe
from rlzoo.recipe.words import split_values
from rlzoo_lab.data.variants import in_full, shown_options, variants


def estimators_of(words: list[str], zoo: Zoo, *, need_recipe: bool = True) -> list[Recipe]:
    """A recipe for each estimator and each combination of the swept options that it has."""
    words = in_full(words, zoo)
    for word in words:
        key, _, value = word.partition("=")
        if key != "recipe" and not key.startswith("estimator") and len(split_values(value)) > 1:
            raise RlzooError(
                f"{key}={value}: diagnose compares only estimators and their options; set other "
                "options, such as --critic and --world, to one value"
            )
    return variants(words, [], zoo, need_recipe=need_recipe)


def own_and_others(
    words: list[str], estimator: str, zoo: Zoo, *, need_recipe: bool = True
) -> list[Recipe]:
    """The run's own estimator first, then all others."""
    others = ",".join(name for name in zoo.estimators if name != estimator)
    # The run's own options stay the run's: a sweep would reset none of the others.
    rest = estimators_of([*words, f"estimator={others}"], zoo, need_recipe=need_recipe)
    return estimators_of(words, zoo, need_recipe=need_recipe) + rest


def row_head(estimator: Bound, words: list[str]) -> dict[str, Any]:
    """The first fields of a row of a document. `shown`: options that are swept or not at their
    defaults."""
    component, options = estimator.component, estimator.options
    shown = shown_options(component, options, words)
    return {"estimator": component.name, "options": options, "shown": shown}


CRITICS = ("exact", "noisy", "zero")


def critics_of(listed: str, noise: float, known: Sequence[str] = CRITICS) -> list[str]:
    names = [name.strip() for name in listed.split(",")]
    for name in names:
        if name not in known:
            hint = nearest(name, known)
            raise RlzooError(f"--critic: must be one of {', '.join(known)}. Got {name!r}{hint}")
    if noise < 0:
        raise RlzooError(f"--noise must be at least 0. Got {noise}")
    return list(dict.fromkeys(names))


def sizes_of(listed: str, samples: int) -> tuple[int, ...]:
    """Batch sizes, rounded up to whole groups; none for 0."""
    try:
        sizes = list(map(int, listed.split(",")))
    except ValueError:
        raise RlzooError(f"--batches must be integers, such as 4,16,64. Got {listed!r}") from None
    if sizes == [0]:
        return ()
    if min(sizes) < 1 or max(sizes) > 8192:
        raise RlzooError(f"--batches must be in [1, 8192]. Got {listed}")
    return tuple(sorted({-(-size // samples) * samples for size in sizes}))


MOST_SAMPLES = 64


def samples_of(arguments: argparse.Namespace, recipes: Sequence[Recipe], zoo: Zoo) -> int:
    """The number of rows in a group, one only if nothing compares groups; also checks --cut."""
    first = recipes[0]
    samples = arguments.samples or first.config.rollout.samples
    parts: list[Component | Bound] = [zoo.policy_losses[first.config.policy_loss.name]]
    parts += [
        Bound.of(zoo.estimators[r.config.estimator.name], r.options("estimator")) for r in recipes
    ]
    grouped = [c.name for c in parts if "group_ids" in c.needs]
    least = 2 if grouped else 1
    if not least <= samples <= MOST_SAMPLES:
        place = "--samples" if arguments.samples else first.blame("rollout.samples")
        why = f", which {grouped[0]} compares," if grouped else ""
        raise RlzooError(
            f"{place}: groups{why} need {least} to {MOST_SAMPLES} samples. Got {samples}"
        )
    if arguments.cut is not None and not 1 <= arguments.cut <= arguments.horizon:
        raise RlzooError(f"--cut must be in [1, {arguments.horizon}]. Got {arguments.cut}")
    return samples
