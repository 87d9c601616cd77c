"""An opened recipe: its models, its optimizers and one training step.

A step is `Trainer.sample`, which lists the phases in order, and `Trainer.update`
(`rlzoo.step.update`).
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

from rlzoo.format.tokens import token_table
from rlzoo.lm.critic import Critic
from rlzoo.lm.policy import Policy
from rlzoo.lm.world import World
from rlzoo.mdp.batch import Batch
from rlzoo.mdp.rules import token_texts
from rlzoo.plugin.columns import Columns
from rlzoo.rollout.evaluation import evaluate
from rlzoo.rollout.sample import collect, draw
from rlzoo.runs.metrics import LOG_PROB_GAP, REF_KL_PER_RESPONSE
from rlzoo.step.columns import (
    add_advantages,
    add_columns,
    add_rewards,
    log_prob_gap,
    next_kl_coef,
)
from rlzoo.step.delayed import Delayed
from rlzoo.step.metrics import batch_metrics
from rlzoo.step.update import Experience, Phases, learning_rate, make_optimizers, update

if TYPE_CHECKING:
    from rich.table import Table


SHOWN = ("old_log_probs", "scores", "rewards", "values", "advantages", "returns")


class Trainer:
    """The trainer of `rlzoo run`, for a step or a part of a step at a time. It writes no file.

        trainer = rlzoo.open_recipe("ppo_gae", ["rollout.prompts=4"])
        experience = trainer.sample()          # experience.batch: all columns, by name
        print(trainer.table(experience.batch)) # one response, token by token (rich's print)
        metrics = trainer.update(experience)   # epochs of mini-batches on that batch
        trainer.evaluate(64)                   # on held-out prompts

    steps: training steps taken. All randomness is a function of (seed, step).
    """

    def __init__(self, world: World):
        self.world, self.plan, self.engine = world, world.plan, world.engine
        self.optimizers = make_optimizers(self.engine, self.plan)
        self.kl_coef = self.plan.recipe.config.kl.coef if self.plan.kl else 0.0
        staleness = self.plan.recipe.config.rollout.staleness
        self.delayed = Delayed(self.policy.model, staleness) if staleness else None
        self.steps = 0
        self.clock: Callable[[], float] = time.perf_counter  # of what phases take

    @property
    def policy(self) -> Policy:
        """The trained language model: `log_probs(batch)`, `logits(batch)`."""
        return self.world.policy

    @property
    def reference(self) -> Policy | None:
        """The policy before training, or one that follows it, if the plan needs it."""
        return self.world.engine.reference

    @property
    def critic(self) -> Critic | None:
        """V(s_t), if the plan needs it: `values(batch)["values"]`."""
        return self.world.engine.critic

    def sample(self) -> Experience:
        """The batch of the next step: prompts, sampled and scored responses, the columns that the
        plan needs, rewards and advantages."""
        world, plan, step = self.world, self.plan, self.steps
        rollout, phases = plan.recipe.config.rollout, Phases()
        older = self.delayed.within() if self.delayed else nullcontext()  # weights to sample with
        with self._timed(phases, "gen"), older:
            prompts = draw(world, "train", rollout.prompts, "train", step)
            batch = collect(world, prompts, rollout.samples, stream="train", step=step)
        with self._timed(phases, "columns"):
            drawn = "old_log_probs" in batch
            kept = add_columns(world, batch, stream="train", step=step, for_update=True)
            gap = log_prob_gap(self.engine, batch, kept, sampled=drawn)
        with self._timed(phases, "adv"):
            add_rewards(plan, batch, self.kl_coef)
            add_advantages(plan, batch)
        return Experience(batch, gap, kept, phases)

    def update(self, experience: Experience, progress: float = 0.0) -> dict[str, float]:
        """Train on a batch, which cannot be used again; returns the step's metrics by name.

        progress: the used share of the budget, in [0, 1], for the learning-rate schedule.
        """
        plan, config, batch = self.plan, self.plan.recipe.config, experience.batch
        coef, lr = self.kl_coef, {}
        for name, optimizer in self.optimizers.items():
            lr[f"{name}/lr"] = rate = learning_rate(config[name], self.steps, progress)
            for group in optimizer.param_groups:
                group["lr"] = group.get("scale", 1.0) * rate
        if self.delayed:
            self.delayed.remember()
        phases = dict(experience.phases)
        with self._timed(phases, "update"):
            updated = update(self.world, experience, self.optimizers, self.steps, coef)
        self.steps += 1
        if plan.moving_reference and self.steps % (config.kl.sync_steps or 1) == 0:
            self.engine.reference.move_towards(self.policy, config.kl.sync_mix or 1.0)
        measured = batch_metrics(plan, batch.cpu())
        if REF_KL_PER_RESPONSE in measured:
            self.kl_coef = next_kl_coef(config.kl, coef, measured[REF_KL_PER_RESPONSE], batch.rows)
        seconds, tokens = zip(*phases.values(), strict=True)
        return {
            **measured,
            **updated,
            "actor/kl_coef": coef,
            LOG_PROB_GAP: experience.log_prob_gap,
            **lr,
            "perf/tokens_per_second": sum(tokens) / max(sum(seconds), 1e-9),
            **{f"tokens/{phase}": phases[phase][1] for phase in ("gen", "columns")},
            **{f"timing_s/{phase}": x for phase, (x, _) in phases.items()},
        }

    @contextmanager
    def _timed(self, phases: Phases, name: str) -> Iterator[None]:
        began, before = self.clock(), self.engine.meter.tokens
        yield
        phases[name] = self.clock() - began, self.engine.meter.tokens - before

    def step(self, progress: float = 0.0) -> tuple[Batch, dict[str, float]]:
        """One training step: its batch, and its metrics."""
        experience = self.sample()
        return experience.batch, self.update(experience, progress)

    def table(self, batch: Columns, row: int = 0, columns: Sequence[str] = SHOWN) -> "Table":
        """One response as a rich table for a terminal or a notebook: its tokens, and those (B, T)
        `columns` that the batch has."""
        ids = batch["response_ids"][row][batch["response_attention"][row].bool()].tolist()
        texts = token_texts(self.world.policy.tokenizer, ids)
        return token_table(
            [texts[i] for i in ids],
            {n: batch[n][row].tolist() for n in columns if n in batch},
            chosen=batch["response_mask"][row].bool().tolist(),
            title=f"{batch['prompts'][row]!r}",
        )

    def evaluate(self, prompts: int | None = None) -> dict[str, Any]:
        """Accuracy and score on held-out prompts, as many as `eval.samples` by default, one sample
        each; with 95 % intervals. The same prompts and noise each time."""
        return evaluate(self.world, prompts or self.plan.recipe.config.eval.samples)[0]
