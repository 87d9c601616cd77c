"""`rlzoo diagnose`: bias and variance of any estimator, and their cost, against the exact truth.

A recipe names the estimators, their options and the group size. The truth comes from a small
enumerated world (`rlzoo_lab.kit.oracle.worlds`).
"""

import argparse
from functools import partial
from typing import Any

from rlzoo.errors import RlzooError
from rlzoo.plugin.registry import Zoo, load_zoo
from rlzoo.plugin.sketch import load_zoo_after
from rlzoo.recipe.words import split_values
from rlzoo_lab.diagnose.asked import critics_of, estimators_of, samples_of, sizes_of


def diagnose(
    words: list[str], arguments: argparse.Namespace, zoo: Zoo | None = None
) -> dict[str, Any]:
    """The document that `--json` prints; raises RlzooError."""
    zoo = zoo or _zoo(words)
    recipes = estimators_of(words, zoo)
    first, config = recipes[0], recipes[0].config
    critics = critics_of(arguments.critic, arguments.noise)
    samples = samples_of(arguments, recipes, zoo)
    # From here on torch, which a faulty command line need not wait for.
    import torch

    if config.run.threads:
        torch.set_num_threads(config.run.threads)
    from rlzoo_lab.diagnose.setting import Setting
    from rlzoo_lab.kit.oracle.episodes import enumerate_episodes
    from rlzoo_lab.kit.oracle.tree import make_tree
    from rlzoo_lab.kit.oracle.worlds import make_critic, make_world

    sizes = sizes_of(arguments.batches, samples)
    kl_coef = config.kl.coef if arguments.kl and config.kl.place == "reward" else 0.0
    tree = make_tree(
        arguments.vocabulary,
        arguments.horizon,
        stops=not arguments.fixed_length,
        prompts=arguments.prompts,
    )
    oracle = make_world(arguments.world, tree, seed=config.seed, kl_coef=kl_coef)
    episodes = enumerate_episodes(oracle, arguments.cut)
    setting = Setting(first, zoo, oracle, episodes, samples, kl_coef)
    values = {
        name: make_critic(name, oracle, size=arguments.noise, seed=config.seed) for name in critics
    }
    rows = setting.ask(recipes, words, values, sizes)
    reached = episodes.reached(tree.states)[:, None]
    return {
        "world": {
            **setting.facts(arguments),
            "expected_return": oracle.expected_return,
            "expected_length": oracle.expected_length,
            "kl_coef": kl_coef,
            "kl": oracle.kl(),
            "gradient_norm": torch.where(reached, oracle.gradient(), 0).norm().item(),
        },
        **rows,
    }


def _zoo(words: list[str]) -> Zoo:
    """The zoo, with estimators that are functions elsewhere: estimator=verl:grpo,grpo."""
    written = [word.partition("=") for word in words]
    names = [name for key, _, text in written if key in ("estimator", "estimator.name")
             for name in split_values(text) if ":" in name]  # fmt: skip
    if not names:
        return load_zoo_after(partial(estimators_of, words))
    from rlzoo_lab.kit.foreign import components  # it imports torch

    zoo = load_zoo()
    for name in names:
        made = [c for c in components(name, {}, {})[0] if c.kind == "estimators"]
        if not made:
            raise RlzooError(f"estimator={name}: it is not an advantage estimator")
        zoo.estimators[name] = made[0]
    return zoo
