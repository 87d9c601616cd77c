"""A world, and each estimator of a recipe run and measured in it."""

import argparse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

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
from rlzoo_lab.kit.oracle.episodes import EpisodeTable, make_columns, supply
from rlzoo_lab.kit.oracle.oracle import Oracle
from rlzoo_lab.kit.oracle.subject import EstimatorInWorld, loss_weight


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


@dataclass
class Setting:
    """`samples`: rows per group."""

    recipe: Recipe
    zoo: Zoo
    oracle: Oracle
    episodes: EpisodeTable
    samples: int
    kl_coef: float
    left_out: dict[str, None] = field(default_factory=dict)  # of the recipes' gradients, in order

    def facts(self, arguments: argparse.Namespace) -> dict[str, Any]:
        """The properties of the world in a document; they do not depend on the policy."""
        config, tree = self.recipe.config, self.oracle.tree
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
            "seed": config.seed,
        }

    def ask(
        self,
        recipes: Sequence[Recipe],
        words: list[str],
        critics: Mapping[str, Tensor],
        sizes: tuple[int, ...],
    ) -> dict[str, list[Any]]:
        """The lists of a document: `estimators`, a row for each estimator and each critic, name ->
        V (S,), that it reads; `not_diagnosable`; `failed`; and `left_out`, settings of the recipe
        that its gradient here does not contain."""
        lists = ("estimators", "not_diagnosable", "failed")
        rows: dict[str, list[dict[str, Any]]] = {name: [] for name in lists}
        for recipe in recipes:
            self.left_out |= dict.fromkeys(_off_policy(recipe, self.zoo))
            component = self.zoo.estimators[recipe.config.estimator.name]
            bound = Bound.of(component, recipe.options("estimator"))
            reads_critic = not set(bound.needs).isdisjoint(MODELS["critic"])
            for critic in list(critics) if reads_critic else list(critics)[:1]:
                subject, missing = self.subject(recipe, critics[critic])
                if missing:
                    rows["not_diagnosable"].append({"estimator": component.name, "needs": missing})
                    break
                try:
                    numbers = self._measure(subject, sizes)
                except RlzooError as error:
                    rows["failed"].append({"estimator": component.name, "reason": str(error)})
                    break
                rows["estimators"].append(
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
        return rows | {"left_out": list(self.left_out)}

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
            bound.component,
            options,
            self.oracle,
            self.episodes,
            columns,
            samples=self.samples,
            given_weight=weight,
            whiten=mine.whiten,
            ddof=mine.whiten_ddof,
            seed=config.seed,
        )
        return subject, missing

    def columns(self, values: Tensor) -> dict[str, Any]:
        """The columns of all episodes with a critic (S,)."""
        config, kl = self.recipe.config, None
        if self.kl_coef:
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

    def _measure(self, subject: EstimatorInWorld, sizes: tuple[int, ...]) -> dict[str, Any]:
        numbers = vars(report(subject, sizes=sizes))
        numbers["batches"] = {str(size): batch for size, batch in numbers["batches"].items()}
        return numbers
