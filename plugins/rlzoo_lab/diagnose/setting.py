"""A world, and each estimator of a recipe run and measured in it."""

import argparse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from rlzoo.errors import RlzooError
from rlzoo.plugin.border import Bound
from rlzoo.plugin.registry import Zoo
from rlzoo.recipe.compose import Recipe
from rlzoo.recipe.plan import CRITIC_COLUMNS
from rlzoo_lab.diagnose.asked import row_head
from rlzoo_lab.kit.oracle.bias import STEP_KL, report
from rlzoo_lab.kit.oracle.episodes import EpisodeTable, make_columns, supply
from rlzoo_lab.kit.oracle.means import some_groups
from rlzoo_lab.kit.oracle.oracle import Oracle
from rlzoo_lab.kit.oracle.subject import EstimatorInWorld, make_loss


def _off_policy(recipe: Recipe) -> Iterator[str]:
    """Settings by which a run's samples or their weights are not those of the policy itself."""
    config, rollout = recipe.config, recipe.config.rollout
    if config.sampler.name != "transformers":
        yield f"sampler={config.sampler.name}"
    if config.correction.name:
        yield f"correction={config.correction.name}"
    usual = {"top_p": 1.0, "top_k": 0, "min_new_tokens": 0, "staleness": 0}
    yield from (f"rollout.{k}={x}" for k, y in usual.items() if (x := getattr(rollout, k)) != y)
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
            self.left_out |= dict.fromkeys(_off_policy(recipe))
            component = self.zoo.estimators[recipe.config.estimator.name]
            bound = Bound.of(component, recipe.options("estimator"))
            reads_critic = not set(bound.needs).isdisjoint(CRITIC_COLUMNS)
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
        subject = EstimatorInWorld(
            bound.component,
            options,
            self.oracle,
            self.episodes,
            columns,
            samples=self.samples,
            prompts=min(config.rollout.prompts, 8),
            seed=config.seed,
        )
        drops = config.rollout.truncation == "drop"
        loss = make_loss(
            Bound.of(self.zoo.aggregations[mine.aggregation.name], recipe.options("aggregation")),
            self.episodes,
            whiten=mine.whiten,
            ddof=mine.whiten_ddof,
            kept=~columns["truncated"] if drops else None,
        )
        subject.loss = loss
        if not missing:
            subject.loss = replace(loss, policy=self._policy_loss(subject, recipe))
        return subject, missing

    def _policy_loss(self, subject: EstimatorInWorld, recipe: Recipe) -> Bound | None:
        """The recipe's policy loss; None if its gradient on the policy's own samples is in
        proportion to the advantages, or if it needs columns that are not there."""
        name, columns = recipe.config.policy_loss.name, subject.columns
        policy = Bound.of(self.zoo.policy_losses[name], recipe.options("policy_loss"))
        columns |= {"log_probs": columns["old_log_probs"], "entropy": columns["old_entropy"]}
        one_turn = columns["response_mask"].long()  # without observations
        columns |= {
            "turn_ids": one_turn,
            "observation_nll": torch.zeros_like(columns["sequence_rewards"]),
        }
        asked = [n for n in policy.needs if n not in ("advantages", "raw_advantages")]
        if lack := supply(self.zoo, asked, columns):
            self.left_out[f"policy_loss={name} (it needs {', '.join(lack)})"] = None
            return None
        rows, ids = some_groups(subject)
        a = subject.among(subject.columns, rows, ids)
        live = subject.weight[rows] > 0
        x, y = a[live], subject.push(policy, a, rows, ids)[live]
        slope = (x @ y) / (x @ x).clamp(min=1e-300)
        alike = slope > 0 and torch.allclose(y, slope * x, rtol=1e-9, atol=1e-12)
        return None if alike else policy

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
