"""An opened recipe: what it plans, and the engine that computes its networks."""

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from torch import nn

from rlzoo.accel.engine import Engine
from rlzoo.lm.policy import Policy
from rlzoo.lm.prompts import PromptFormat
from rlzoo.recipe.plan import Plan


@dataclass(frozen=True, eq=False)
class World:
    """plan: the recipe's components. engine: the networks. prompt_format: how prompts become
    tokens. seed: all randomness follows from it. contract: the findings of the probe, by name.
    weights: the checksum of the policy's files. memory: of columns, from step to step.
    """

    plan: Plan
    engine: Engine
    prompt_format: PromptFormat
    seed: int
    contract: dict[str, str] = field(default_factory=dict)
    weights: str = ""
    memory: dict[str, Any] = field(default_factory=dict)

    @cached_property
    def policy(self) -> Policy:
        return self.engine.policy

    @property
    def changing(self) -> dict[str, nn.Module]:
        """The networks whose weights a run changes, by name: those that are trained, and a
        reference that moves."""
        reference = self.engine.reference if self.plan.moving_reference else None
        moves = {} if reference is None else {"reference": reference.model}
        return self.engine.networks | moves
