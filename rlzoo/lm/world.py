"""An opened recipe: what it plans, and the engine that computes its networks."""

from dataclasses import dataclass, field
from typing import Any

from rlzoo.accel.engine import Engine, Meter
from rlzoo.lm.critic import Critic
from rlzoo.lm.policy import Policy
from rlzoo.lm.prompts import PromptFormat
from rlzoo.recipe.plan import Plan


@dataclass(frozen=True, eq=False)
class World:
    """plan: the recipe's components. engine: the networks. prompt_format: how prompts become
    tokens. seed: of all randomness. contract: what the model's probe found, by name. weights: the
    checksum of the files that the policy was loaded from. memory: of columns, from step to step.
    """

    plan: Plan
    engine: Engine
    prompt_format: PromptFormat
    seed: int
    contract: dict[str, str] = field(default_factory=dict)
    weights: str = ""
    memory: dict[str, Any] = field(default_factory=dict)

    @property
    def policy(self) -> Policy:
        return self.engine.policy

    @property
    def reference(self) -> Policy | None:
        return self.engine.reference

    @property
    def critic(self) -> Critic | None:
        return self.engine.critic

    @property
    def tokenizer(self) -> Any:
        return self.engine.policy.tokenizer

    @property
    def meter(self) -> Meter:
        return self.engine.meter

    @property
    def notes(self) -> list[str]:
        """Lines for the user; shown ones are removed."""
        return self.engine.notes
