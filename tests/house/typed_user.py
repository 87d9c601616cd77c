"""A user's file, for mypy alone: each public name has its type, and a misspelt one is an error.

An ignored error that is none is an error itself (`warn_unused_ignores`).
"""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, assert_type

import torch
from torch import Tensor

import rlzoo
from rlzoo import Discount, Example, Range, checks, component, hookimpl, oracle, reward_models
from rlzoo.plugin.protocols import Abilities, Logger, Task, abilities
from rlzoo_lab.api.document import Document, Rows


class Parrot:
    def draw(self, split: str, n: int, generator: torch.Generator) -> list[Example]:
        return [Example("a", "b")] * n

    def score(self, responses: list[str], terminated: Tensor) -> Tensor:
        return terminated.float()


class Mute:
    def draw(self, split: str, n: int, generator: torch.Generator) -> list[Example]:
        return []


class Silent:
    def __init__(self, path: Path):
        self.path = path

    def log(self, metrics: object) -> None: ...
    def close(self) -> None: ...


def credit(rewards: Tensor, *, gamma: Discount = 1.0, k: Annotated[int, Range(1, 3)] = 1) -> Tensor:
    return gamma * k * rewards


@component("reward")
def first(rewards: Tensor) -> Tensor:
    return rewards[:, 0]


assert_type(first(torch.zeros(1, 1)), Tensor)


@hookimpl
def register_estimators(register: Callable[..., None]) -> None:
    register(credit)


def of_objects() -> None:
    parrot: Task = Parrot()
    mute: Task = Mute()  # type: ignore[assignment]
    logger: Logger = Silent(Path())
    assert_type(abilities(parrot), Abilities)
    assert_type(abilities(mute).stops, tuple[str, ...])
    logger.log({})


def of_runs() -> None:
    run = rlzoo.run("grpo", {"seed": 1}, display=False, lam=0.9)
    assert_type(run, rlzoo.Run)
    assert_type(rlzoo.resume(run.path), rlzoo.Run)
    assert_type(rlzoo.load_run("runs/a"), rlzoo.Run)
    for document in (
        rlzoo.sweep("grpo", ["seed=0,1"]),
        rlzoo.compare(run, "runs/b"),
        rlzoo.compare_scores({"a": [0.1, 0.2], "b": [0.3, 0.4]}, paired=False),
        rlzoo.diagnose("grpo"),
        rlzoo.trace(run),
        rlzoo.evaluate(run),
        rlzoo.doctor(run),
        rlzoo.report(run),
        rlzoo.export(run, "out"),
    ):
        assert_type(document, Document)
    assert_type(rlzoo.check("gae"), Rows)
    assert_type(rlzoo.verb("model", "sft", "a.jsonl"), Document | Rows)
    rlzoo.run("grpo", display=3)  # type: ignore[arg-type]
    rlzoo.runn("grpo")  # type: ignore[attr-defined]


def of_a_step() -> None:
    trainer = rlzoo.open_recipe("grpo", zoo=rlzoo.load_zoo())
    config = trainer.world.plan.recipe.config
    assert_type(config.rollout.samples, int)
    assert_type(config.model.path, str | None)
    assert_type(config.critic.lr, float)
    config.rollout.smaples  # type: ignore[attr-defined]  # noqa: B018


def of_tensors(x: Tensor, ids: Tensor) -> None:
    assert_type(rlzoo.group_mean(x, ids), Tensor)
    assert_type(rlzoo.group_std(x, ids, ddof=0), Tensor)
    assert_type(rlzoo.group_sum(x, ids), Tensor)
    assert_type(rlzoo.group_degenerate(x, ids), Tensor)
    assert_type(rlzoo.masked_mean(x, x), Tensor)
    assert_type(rlzoo.masked_var(x, x, ddof=1), Tensor)
    assert_type(rlzoo.next_action(x, x), Tensor)
    assert_type(rlzoo.linear_scan(x, 0.9), Tensor)
    assert_type(rlzoo.group_count(ids), Tensor)
    assert_type(rlzoo.td_lambda(x, x, ids, x, lam=0.9), Tensor)


def of_the_rest() -> None:
    assert_type(rlzoo.secret("TOKEN"), str)
    assert_type(rlzoo.new("task", "mine"), list[Path])
    assert_type(rlzoo.__version__, str)
    assert_type(rlzoo.RlzooError("").status, int)
    assert_type(checks.run_checks(rlzoo.load_zoo().tasks["marks"]), list[checks.CheckResult])
    rlzoo.parametrize_with_checks(["verl:grpo"], map={"pay": "rewards"})
    print(oracle.Oracle.mistyped)  # type: ignore[attr-defined]
    print(reward_models.RewardModel.mistyped)  # type: ignore[attr-defined]
