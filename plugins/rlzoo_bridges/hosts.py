"""The columns that each trainer's data provide, and why others are missing. No trainer is
imported here."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rlzoo.errors import UsageError, nearest

PREFIX = "rlzoo/"  # in a trainer's registries the zoo's names begin with it

# Column -> the columns that it follows from, in any trainer (`columns.py` makes it).
DERIVED = {
    "sequence_rewards": ("rewards", "response_mask"),
    "sequence_scores": ("scores", "response_mask"),
    "bootstrap_values": ("values", "response_mask"),
    "turn_ids": ("response_mask",),
}

LOSS_COLUMNS = ("log_probs", "old_log_probs", "advantages", "response_mask")

# Columns that no trainer has, or hands to a policy loss.
NOWHERE = {
    "state_keys": "only rlzoo records keys of equal environment states",
    "branch_values": "rlzoo computes it by resampling from the middle of a response",
    "branch_steps": "rlzoo computes it by resampling from the middle of a response",
    "implicit_rewards": "rlzoo computes it with a frozen implicit reward model",
    "noise": "it is a random number per token that depends on the run's seed",
}


@dataclass(frozen=True)
class Host:
    """A trainer, and what of its data the zoo is given.

    feeds:   column of an estimator -> what it is there.
    without: why columns are missing, where a user may expect them -> these columns.
    asks:    column -> the setting that provides it.
    losses:  whether the zoo's policy losses can run there.
    estimates: whether its estimators can.
    separate: whether a loss gets one response at a time.
    scaled:  whether advantages reach a loss multiplied by the weights of its mean: then only a loss
             that is proportional to them is itself.
    """

    name: str
    title: str
    version: str
    feeds: Mapping[str, str] = field(default_factory=dict)
    without: Mapping[str, str] = field(default_factory=dict)
    asks: Mapping[str, str] = field(default_factory=dict)
    losses: bool = True
    estimates: bool = True
    separate: bool = False
    scaled: bool = False

    @property
    def lacks(self) -> dict[str, str]:
        """Column -> why it is missing."""
        return {name: why for why, names in self.without.items() for name in names.split()}

    @property
    def columns(self) -> frozenset[str]:
        """The columns that an estimator can be given."""
        made = {
            n for n, of in DERIVED.items() if n not in self.lacks and set(of) <= set(self.feeds)
        }
        return frozenset(self.feeds) | made

    def gives(self, column: str, plugins: Mapping[str, Any]) -> bool:
        """Whether an estimator can be given a column: the trainer has it, or the column of a plugin
        is made of such as the trainer has."""
        if column in self.columns or column not in plugins:
            return column in self.columns
        return all(self.gives(name, plugins) for name in plugins[column].needs)

    def missing(self, component, plugins: Mapping[str, Any]) -> list[str]:
        """The columns of an estimator or policy loss that cannot be had."""
        if component.kind == "estimators":
            return [name for name in component.needs if not self.gives(name, plugins)]
        return [name for name in component.needs if name not in LOSS_COLUMNS]

    def refusal(self, component, plugins: Mapping[str, Any]) -> str:
        """Why an estimator or policy loss cannot run here; empty where it can. plugins: the zoo's
        columns, which are made here where the trainer has what they need."""
        cannot = f"{component.label} cannot run in {self.title}"
        if component.kind == "policy_losses" and not self.losses:
            return f"{cannot}, which uses its own policy loss"
        if component.kind == "estimators" and not self.estimates:
            return f"{cannot}, which uses its own advantages"
        if missing := self.missing(component, plugins):
            whys: dict[str, list[str]] = {}  # a shared reason is given once
            for column in missing:
                why = self.why(column, component.kind, plugins)
                whys.setdefault(why, []).append(repr(column))
            told = "; ".join(f"{', '.join(names)} ({why})" for why, names in whys.items())
            return f"{cannot}: it needs {told}"
        if component.kind == "policy_losses" and self.separate and component.couples != "row":
            return (
                f"{cannot}: it compares responses, but that trainer passes a loss one "
                "response at a time"
            )
        if component.kind == "policy_losses" and self.scaled:
            from rlzoo_bridges.proportional import proportional  # imports torch

            if not proportional(component):
                return (
                    f"{cannot}: advantages arrive there multiplied by the weights of the loss's "
                    "mean, but this loss is not proportional to them"
                )
        return ""

    def why(self, column: str, kind: str, plugins: Mapping[str, Any]) -> str:
        """Why a column is not to be had."""
        if kind == "policy_losses" and column not in NOWHERE:
            return "policy losses do not receive it in that trainer"
        if known := self.lacks.get(column) or NOWHERE.get(column):
            return known
        if column not in plugins:
            return "that trainer does not provide it"
        lost = [name for name in plugins[column].needs if not self.gives(name, plugins)]
        made_of = ", ".join(f"{name!r}: {self.why(name, kind, plugins)}" for name in lost)
        return f"a plugin computes it from {made_of}"


HOSTS: dict[str, Host] = {
    host.name: host
    for host in (
        Host(
            "verl",
            "verl",
            "0.9.1",
            feeds={
                "rewards": "`token_level_rewards`",
                "scores": "`token_level_scores`, before KL",
                "response_mask": "`response_mask`",
                "group_ids": "`uid`",
                "values": "`values`",
                "old_log_probs": "`old_log_probs`",
                "sampler_log_probs": "`rollout_log_probs`",
                "ref_log_probs": "`ref_log_prob`",
                "sum_pi_squared": "`sum_pi_squared`",
                "greedy_scores": "`reward_baselines`",
                "score_components": "the columns named by `algorithm.gdpo_reward_keys`",
                "score_weights": "`algorithm.gdpo_reward_weights`",
            },
            without={"verl logs its mean but drops it before computing advantages": "old_entropy"},
            asks={
                "values": "critic.enable=true",
                "sampler_log_probs": "actor_rollout_ref.rollout.calculate_log_probs=true",
                "ref_log_probs": "a KL penalty, which needs a reference model",
                "sum_pi_squared": "actor_rollout_ref.actor.calculate_sum_pi_squared=true and "
                "trainer.use_v1=false",
                "greedy_scores": "reward_baselines, which verl computes only for its own remax",
                "score_components": "algorithm.gdpo_reward_keys and trainer.use_v1=false",
                "score_weights": "algorithm.gdpo_reward_keys",
            },
        ),
        Host(
            "skyrl",
            "SkyRL",
            "0.3.0",
            feeds={
                "rewards": "`token_level_rewards`",
                "scores": "the same, if `use_kl_in_reward` is off",
                "response_mask": "`response_mask`",
                "group_ids": "`index`, the uids",
                "values": "`values`",
            },
            without={
                "its mask includes observations in the response": "turn_ids",
                "estimators do not receive log-probabilities": "old_log_probs sampler_log_probs "
                "sum_pi_squared old_entropy",
                "it does not sample a greedy response": "greedy_scores",
                "estimators receive only one reward": "score_components score_weights",
            },
            asks={
                "values": "trainer.critic.model.path=MODEL",
                "scores": "trainer.algorithm.use_kl_in_reward=false",
            },
            scaled=True,
        ),
        Host(
            "slime",
            "slime",
            "624b824, 2026-08-21",
            feeds={
                "rewards": "`rewards` at the last action minus `--kl-coef` times `kl`",
                "scores": "`rewards` at the last action",
                "response_mask": "`loss_masks`",
                "group_ids": "`sample_indices` over `--n-samples-per-prompt`",
                "values": "`values`",
                "old_log_probs": "`log_probs`",
                "sampler_log_probs": "`rollout_log_probs`",
                "ref_log_probs": "`ref_log_probs`",
            },
            without={
                "it is not computed": "sum_pi_squared",
                "it is not computed before the advantages": "old_entropy",
                "it does not sample a greedy response": "greedy_scores",
                "a response has only one reward": "score_components score_weights",
            },
            asks={
                "values": "--advantage-estimator ppo, which builds a critic",
                "old_log_probs": "a critic, --kl-coef, or more than one step per rollout",
                "sampler_log_probs": "a rollout function that returns log-probabilities",
                "ref_log_probs": "--kl-coef or --use-kl-loss",
            },
            losses=False,
        ),
        Host(
            "trl",
            "TRL",
            "1.16.0",
            feeds={
                "rewards": "the weighted sum of the reward functions, at the last action",
                "scores": "the same: there is no KL in the reward",
                "response_mask": "`completion_mask` times `tool_mask`",
                "group_ids": "rows over `num_generations`",
                "score_components": "the value of each reward function",
                "score_weights": "`reward_weights`",
            },
            without={
                "it has no critic": "values bootstrap_values",
                "it is often not computed": "old_log_probs sampler_log_probs",
                "it is not computed": "sum_pi_squared",
                "it is not computed before the advantages": "old_entropy",
                "it does not sample a greedy response": "greedy_scores",
            },
        ),
        Host("prime-rl", "prime-rl", "559b447, 2026-08-21", estimates=False, separate=True),
        Host(
            "rllm",
            "rLLM",
            "0.3.0-pre, 9beb6e0 of 2026-08-15",
            feeds={
                "rewards": "a trajectory's `reward`, at its last token",
                "scores": "the same: there is no KL in the reward",
                "response_mask": "one for each of a trajectory's `response_ids`",
                "group_ids": "the `TrajectoryGroup`",
            },
            without={
                "it keeps one advantage for a whole trajectory": "turn_ids",
                "it has no critic": "values bootstrap_values",
                "estimators do not receive log-probabilities": "old_log_probs sampler_log_probs",
                "it is not computed": "sum_pi_squared old_entropy",
                "it does not sample a greedy response": "greedy_scores",
                "a trajectory has only one reward": "score_components score_weights",
            },
            losses=False,
        ),
    )
}


def find_host(name: str) -> Host:
    """The trainer of that name; raises UsageError."""
    if name not in HOSTS:
        raise UsageError(
            f"there is no bridge to {name!r} (available: {', '.join(HOSTS)}){nearest(name, HOSTS)}"
        )
    return HOSTS[name]
