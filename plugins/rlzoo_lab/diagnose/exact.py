"""`rlzoo diagnose`: bias and variance of any estimator, and their cost, against the exact truth.

A recipe names the estimators, their options and the group size. The truth comes from a small
enumerated world (`rlzoo_lab.kit.oracle.worlds`).
"""

import argparse
from collections.abc import Sequence
from functools import partial
from typing import Any

from rlzoo.errors import RlzooError, UsageError, nearest
from rlzoo.plugin.border import Bound
from rlzoo.plugin.component import Component
from rlzoo.plugin.registry import Zoo, load_zoo
from rlzoo.plugin.sketch import load_zoo_after
from rlzoo.recipe.compose import Recipe
from rlzoo.recipe.words import split_values
from rlzoo_lab.data.variants import variants


def diagnose(
    words: list[str], arguments: argparse.Namespace, zoo: Zoo | None = None
) -> dict[str, Any]:
    """The document that `--json` prints; raises RlzooError."""
    zoo = zoo or _zoo(words, arguments.map)
    recipes = variants(words, [], zoo)
    first, config = recipes[0], recipes[0].config
    critics = critics_of(arguments.critic, arguments.noise)
    samples = samples_of(arguments, recipes, zoo)
    sizes = sizes_of(arguments.batches, samples)
    # From here on torch, which a faulty command line need not wait for.
    import torch

    if config.run.threads:
        torch.set_num_threads(config.run.threads)
    from rlzoo_lab.diagnose.setting import Setting

    setting = Setting(first, zoo, arguments, samples)
    return {"world": setting.facts(), **setting.ask(recipes, words, critics, sizes)}


def _zoo(words: list[str], maps: Sequence[str]) -> Zoo:
    """The zoo, with estimators that are functions elsewhere: estimator=verl:grpo,grpo; maps:
    THEIRS=OURS."""
    written = [word.partition("=") for word in words]
    names = [name for key, _, text in written if key in ("estimator", "estimator.name")
             for name in split_values(text) if ":" in name]  # fmt: skip
    if not names:
        if maps:
            raise UsageError("--map: is for estimator=FILE.py:FUNCTION")
        return load_zoo_after(partial(variants, words, []))
    from rlzoo_lab.kit.foreign import components, pairs  # it imports torch

    zoo = load_zoo()
    for name in names:
        made = [c for c in components(name, {}, pairs(maps))[0] if c.kind == "estimators"]
        if not made:
            raise RlzooError(f"estimator={name}: it is not an advantage estimator")
        zoo.estimators[name] = made[0]
    return zoo


CRITICS = ("exact", "noisy", "zero")


def critics_of(listed: str, noise: float) -> list[str]:
    names = [name.strip() for name in listed.split(",")]
    for name in names:
        if name not in CRITICS:
            hint = nearest(name, CRITICS)
            raise RlzooError(f"--critic: must be one of {', '.join(CRITICS)}. Got {name!r}{hint}")
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
