"""`rlzoo diagnose`: bias, variance and what they cost, of any estimator, against the exact truth.

A recipe names the estimators, their options and the group size; the truth comes from a small
enumerated world (`rlzoo.oracle.worlds`) or, with `--model`, from the recipe's own task and model
with few tokens allowed. A run folder in the place of a recipe compares estimators on its saved
batches.
"""

import argparse
from collections.abc import Mapping, Sequence
from typing import Any

from rlzoo.errors import RlzooError
from rlzoo.plugin.component import Component
from rlzoo.plugin.registry import Zoo, load_zoo
from rlzoo.recipe.compose import Recipe
from rlzoo.tools.diagnose.asked import critics_of, estimators_of, labels, samples_of, sizes_of

# ---------------------------------------------------------------- the diagnosis


def diagnose(
    words: list[str], arguments: argparse.Namespace, zoo: Zoo | None = None
) -> dict[str, Any]:
    """The document that `--json` prints; raises RlzooError."""
    zoo = zoo or load_zoo()
    recipes = estimators_of(words, zoo)
    first = recipes[0]
    config = first.config
    critics = critics_of(arguments.critic, arguments.noise)
    samples = samples_of(arguments, first)
    import torch

    if config.run.threads:
        torch.set_num_threads(config.run.threads)
    from rlzoo.oracle.bias import STEP_KL, truth
    from rlzoo.oracle.episodes import enumerate_episodes
    from rlzoo.oracle.tree import make_tree
    from rlzoo.oracle.worlds import make_critic, make_world

    sizes = sizes_of(arguments.batches, samples)
    kl_coef = config.kl.coef if arguments.kl and config.kl.place == "reward" else 0.0
    tree = make_tree(
        arguments.vocabulary,
        arguments.horizon,
        stops=not arguments.fixed_length,
        prompts=arguments.prompts,
    )
    space = None
    if arguments.model:
        from rlzoo.tools.diagnose.model_world import make_model_world

        if arguments.fixed_length:
            raise RlzooError("--fixed-length: a model may always end its response")
        space = make_model_world(first, zoo, tree, kl_coef=kl_coef)
        oracle = space.oracle
    else:
        oracle = make_world(arguments.world, tree, seed=config.seed, kl_coef=kl_coef)
    episodes = enumerate_episodes(oracle, arguments.cut)
    setting = Setting(first, zoo, oracle, episodes, samples, kl_coef)

    values = {
        name: make_critic(name, oracle, size=arguments.noise, seed=config.seed) for name in critics
    }
    rows, undone, failed, subject = setting.rows(recipes, words, values, sizes, space)
    star = truth(subject).norm().item() if subject else 0.0
    return {
        "world": {
            "name": f"{config.task.name} on {config.model.name or config.model.path}"
            if arguments.model
            else arguments.world,
            "vocabulary": tree.vocabulary,
            "horizon": tree.horizon,
            "prompts": tree.prompts,
            "eos": tree.stops,
            "cut": arguments.cut,
            "states": tree.states,
            "episodes": len(episodes.probability),
            "samples": samples,
            "expected_return": oracle.expected_return,
            "expected_length": oracle.expected_length,
            "kl_coef": kl_coef,
            "kl": oracle.kl(),
            "gradient_norm": star,
            "critic_noise": arguments.noise,
            "step_kl": STEP_KL,
            "seed": config.seed,
            **(space.describe() if space else {}),
        },
        "estimators": rows,
        "not_diagnosable": undone,
        "failed": failed,
    }


def _row(subject: Any, sizes: tuple[int, ...], space: Any) -> dict[str, Any]:
    from rlzoo.oracle.bias import report

    found = vars(report(subject, sizes=sizes))
    found["batches"] = {str(size): numbers for size, numbers in found["batches"].items()}
    if space:
        found["parameters"] = space.measure(subject)
    return found


class Setting:
    """A world and what a recipe does in it: makes the subject of each estimator."""

    def __init__(self, recipe: Recipe, zoo: Zoo, oracle: Any, episodes: Any, samples: int,
                 kl_coef: float):  # fmt: skip
        self.recipe, self.zoo = recipe, zoo
        self.oracle, self.episodes, self.samples, self.kl_coef = oracle, episodes, samples, kl_coef

    def columns(self, values: Any, rows: Any = None) -> dict[str, Any]:
        """The columns of all episodes, or of some (B,), under a critic (S,)."""
        from rlzoo.oracle.episodes import make_columns
        from rlzoo.recipe.plan import Bound

        config, kl = self.recipe.config, None
        if self.kl_coef:
            kl = Bound(self.zoo.kl_penalties[config.kl.name], self.recipe.options("kl"))
        return make_columns(
            self.oracle,
            self.episodes if rows is None else self.episodes.select(rows),
            values,
            truncation=config.rollout.truncation,
            truncation_penalty=config.rollout.truncation_penalty,
            kl=kl,
            kl_spread=config.kl.spread,
        )

    def rows(
        self,
        recipes: Sequence[Recipe],
        words: list[str],
        critics: Mapping[str, Any],
        sizes: tuple[int, ...],
        space: Any = None,
    ) -> tuple[list[dict[str, Any]], list[dict[str, Any]], list[dict[str, Any]], Any]:
        """A row for each estimator under each critic, name -> V (S,), that it reads; those that
        cannot be asked, those that failed, and the last subject."""
        from rlzoo.recipe.plan import CRITIC_COLUMNS

        rows: list[dict[str, Any]] = []
        undone: list[dict[str, Any]] = []
        failed: list[dict[str, Any]] = []
        subject = None
        for recipe in recipes:
            component = self.zoo.estimators[recipe.config.estimator.name]
            options = recipe.options("estimator")
            uses_critic = not set(component.needs).isdisjoint(CRITIC_COLUMNS)
            for critic in list(critics) if uses_critic else list(critics)[:1]:
                found, missing = self.subject(component, options, critics[critic])
                if missing:
                    undone.append({"estimator": component.name, "needs": missing})
                    break
                subject = found
                try:
                    row = _row(found, sizes, space)
                except RlzooError as error:
                    failed.append({"estimator": component.name, "reason": str(error)})
                    break
                rows.append(
                    {
                        "estimator": component.name,
                        "options": options,
                        "shown": labels(component, options, words),
                        "critic": critic if uses_critic else None,
                        **row,
                    }
                )
        return rows, undone, failed, subject

    def subject(
        self, component: Component, options: Mapping[str, Any], values: Any
    ) -> tuple[Any, list[str]]:
        """The estimator as a subject for measuring, and what its columns lack."""
        import torch

        from rlzoo.mdp.noise import generator
        from rlzoo.oracle.means import Subject
        from rlzoo.oracle.resources import Resources, supply

        config = self.recipe.config
        chosen = {name: self.recipe.options(f"columns.{name}") for name in config.columns}

        def supplied(m: int, rows: Any) -> tuple[dict[str, Any], list[str], bool]:
            columns = self.columns(values, rows)
            draw = generator(config.seed, "diagnose/columns", m + 1)
            resources = Resources(self.oracle, columns["prompt_index"], draw)
            missing = supply(self.zoo, component.needs, columns, resources.handles(), chosen)
            return columns, missing, resources.random

        def fresh(m: int, rows: Any) -> dict[str, Any]:
            return supplied(m, rows)[0]

        columns, missing, random = supplied(0, None)
        kept = None
        if config.rollout.truncation == "drop":
            kept = (~columns["truncated"]).to(torch.float64)
        found = Subject(
            component,
            options,
            self.oracle,
            self.episodes,
            columns,
            fresh if random else None,
            samples=self.samples,
            prompts=min(config.rollout.prompts, 8),
            kept=kept,
            seed=config.seed,
        )
        return found, missing
