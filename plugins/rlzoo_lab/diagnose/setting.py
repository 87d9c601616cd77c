"""A world, and each estimator of a recipe run and measured in it."""

import argparse
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from rlzoo.errors import RlzooError
from rlzoo.plugin.border import Bound
from rlzoo.plugin.columns import MODELS
from rlzoo.plugin.registry import Zoo
from rlzoo.recipe.compose import Recipe
from rlzoo_lab.data.variants import shown_options
from rlzoo_lab.kit.checks.losses import is_reinforce
from rlzoo_lab.kit.checks.subject import NotApplicable, Subject
from rlzoo_lab.kit.oracle.bias import STEP_KL, report
from rlzoo_lab.kit.oracle.episodes import enumerate_episodes, make_columns, supply
from rlzoo_lab.kit.oracle.subject import EstimatorInWorld, loss_weight
from rlzoo_lab.kit.oracle.tree import make_tree
from rlzoo_lab.kit.oracle.worlds import make_critic, make_world


def row_head(estimator: Bound, words: list[str]) -> dict[str, Any]:
    """The first fields of a row of a document. `shown`: options that are swept or not at their
    defaults."""
    component, options = estimator.component, estimator.options
    shown = shown_options(component, options, words)
    return {"estimator": component.name, "options": options, "shown": shown}


def _off_policy(recipe: Recipe, zoo: Zoo) -> Iterator[str]:
    """Settings by which a run's samples or their weights are not those of the policy itself, and a
    policy loss whose gradient at ratio 1 is not the advantages'."""
    config, rollout = recipe.config, recipe.config.rollout
    if config.sampler.name != "transformers":
        yield f"sampler={config.sampler.name}"
    if config.correction.name:
        yield f"correction={config.correction.name}"
    usual = {"top_p": 1.0, "top_k": 0, "min_new_tokens": 0, "staleness": 0}
    yield from (f"rollout.{k}={x}" for k, y in usual.items() if (x := getattr(rollout, k)) != y)
    loss = Subject(zoo.policy_losses[config.policy_loss.name], zoo, recipe.options("policy_loss"))
    try:
        plain = is_reinforce(loss)
    except NotApplicable:
        plain = False
    if not plain:
        yield f"policy_loss={config.policy_loss.name}"
    if config.actor.entropy_coef:
        yield f"actor.entropy_coef={config.actor.entropy_coef:g}"


class Setting:
    """A world, for the settings of a recipe. samples: rows per group."""

    def __init__(self, recipe: Recipe, zoo: Zoo, arguments: argparse.Namespace, samples: int):
        self.recipe, self.zoo, self.arguments, self.samples = recipe, zoo, arguments, samples
        kl, size = recipe.config.kl, (arguments.vocabulary, arguments.horizon)
        tree = make_tree(*size, stops=not arguments.fixed_length, prompts=arguments.prompts)
        coef = kl.coef if arguments.kl and kl.place == "reward" else 0.0
        self.oracle = make_world(arguments.world, tree, seed=recipe.config.seed, kl_coef=coef)
        self.episodes = enumerate_episodes(self.oracle, arguments.cut)

    def facts(self) -> dict[str, Any]:
        """The properties of the world in a document."""
        arguments, oracle, tree = self.arguments, self.oracle, self.oracle.tree
        reached = self.episodes.reached(tree.states)[:, None]
        return {
            "name": arguments.world,
            "vocabulary": tree.vocabulary,
            "horizon": tree.horizon,
            "prompts": tree.prompts,
            "eos": tree.stops,
            "cut": arguments.cut,
            "states": tree.states,
            "episodes": len(self.episodes.probability),
            "samples": self.samples,
            "critic_noise": arguments.noise,
            "step_kl": STEP_KL,
            "seed": self.recipe.config.seed,
            "expected_return": oracle.expected_return,
            "expected_length": oracle.expected_length,
            "kl_coef": oracle.kl_coef,
            "kl": oracle.kl(),
            "gradient_norm": torch.where(reached, oracle.gradient(), 0).norm().item(),
        }

    def ask(
        self, recipes: Sequence[Recipe], words: list[str], critics: list[str], sizes: Sequence[int]
    ) -> dict[str, list[Any]]:
        """The lists of a document: `estimators`, a row for each estimator and each critic that it
        reads; `not_diagnosable`; `failed`; and `left_out`, settings of the recipe that its gradient
        here does not contain."""
        noise, seed = self.arguments.noise, self.recipe.config.seed
        values = {c: make_critic(c, self.oracle, size=noise, seed=seed) for c in critics}
        left_out = dict.fromkeys(x for recipe in recipes for x in _off_policy(recipe, self.zoo))
        rows, undone, failed = list[Any](), list[Any](), list[Any]()
        for recipe in recipes:
            component = self.zoo.estimators[recipe.config.estimator.name]
            bound = Bound.of(component, recipe.options("estimator"))
            reads_critic = not set(bound.needs).isdisjoint(MODELS["critic"])
            for critic in critics if reads_critic else critics[:1]:
                subject, missing = self.subject(recipe, values[critic])
                if missing:
                    undone.append({"estimator": component.name, "needs": missing})
                    break
                try:
                    numbers = vars(report(subject, sizes=tuple(sizes)))
                except RlzooError as error:
                    failed.append({"estimator": component.name, "reason": str(error)})
                    break
                numbers["batches"] = {str(size): x for size, x in numbers["batches"].items()}
                rows.append(
                    {
                        **row_head(bound, words),
                        "critic": critic if reads_critic else None,
                        "gamma": bound.gamma,
                        "policy_loss": recipe.config.policy_loss.name,
                        "aggregation": recipe.config.aggregation.name,
                        "whiten": recipe.config.whiten,
                        **numbers,
                    }
                )
        return {"estimators": rows, "not_diagnosable": undone, "failed": failed,
                "left_out": list(left_out)}  # fmt: skip

    def subject(self, recipe: Recipe, values: Tensor) -> tuple[EstimatorInWorld, list[str]]:
        """A recipe's estimator and loss as a subject to measure, and the columns that are
        missing."""
        config, mine = self.recipe.config, recipe.config
        options = recipe.options("estimator")
        bound = Bound.of(self.zoo.estimators[mine.estimator.name], options)
        chosen = {name: self.recipe.options(f"columns.{name}") for name in config.columns}
        columns = self.columns(values)
        missing = supply(self.zoo, bound.needs, columns, chosen)
        drops = config.rollout.truncation == "drop"
        weight = loss_weight(
            Bound.of(self.zoo.aggregations[mine.aggregation.name], recipe.options("aggregation")),
            self.episodes,
            kept=~columns["truncated"] if drops else None,
        )
        subject = EstimatorInWorld(
            bound.component, options, self.oracle, self.episodes, columns, samples=self.samples,
            given_weight=weight, whiten=mine.whiten, ddof=mine.whiten_ddof, seed=config.seed,
        )  # fmt: skip
        return subject, missing

    def columns(self, values: Tensor) -> dict[str, Any]:
        """The columns of all episodes with a critic (S,)."""
        config, kl = self.recipe.config, None
        if self.oracle.kl_coef:
            kl = Bound.of(self.zoo.kl_penalties[config.kl.name], self.recipe.options("kl"))
        return make_columns(
            self.oracle,
            self.episodes,
            values,
            truncation=config.rollout.truncation,
            truncation_penalty=config.rollout.truncation_penalty,
            kl=kl,
            kl_spread=config.kl.spread,
        )
