"""One batch of experience: draw prompts, sample responses, add the columns somebody needs, put KL
into the rewards, estimate advantages."""

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field

from rlzoo.lm.models import Models
from rlzoo.mdp.batch import Batch
from rlzoo.plugin.call import together
from rlzoo.plugin.component import Example
from rlzoo.rollout.sample import collect, draw
from rlzoo.step.advantages import add_advantages, add_rewards
from rlzoo.step.columns import Forward, add_columns, log_prob_gap


@dataclass
class Experience:
    """A batch, ready for the update.

    log_prob_gap: how far what was sampled from is from the policy, in nats.
    forward: the update's forward pass, with gradient, where the batch's columns were read off it.
    seconds, tokens: what each phase took, and generated: `gen`, `columns`, `adv`.
    """

    batch: Batch
    log_prob_gap: float
    forward: Forward | None = None
    seconds: dict[str, float] = field(default_factory=dict)
    tokens: dict[str, int] = field(default_factory=dict)

    def release(self) -> None:
        """Let go of the forward pass; the update makes it again."""
        self.forward = None


def experience(
    models: Models,
    step: int,
    kl_coef: float,
    *,
    clock: Callable[[], float] = time.perf_counter,
    sampling: AbstractContextManager | None = None,
) -> Experience:
    """The batch of training step `step`, from 0: all its randomness is a function of the step.

    kl_coef: of the KL in the reward, where the recipe places it there. sampling: within it the
    policy is the one to sample by, should it be another than that of now.
    """
    rollout = models.plan.recipe.config.rollout
    seconds: dict[str, float] = {}
    before = models.meter.tokens
    with timed(seconds, "gen", clock), sampling or nullcontext(), together():
        prompts = draw(models, "train", rollout.prompts, "train", step)
        batch = collect(models, prompts, rollout.samples, stream="train", step=step)
    tokens = {"gen": models.meter.tokens - before}
    with timed(seconds, "columns", clock), together() as checks:
        sampled = "old_log_probs" in batch
        forward = add_columns(models, batch, stream="train", step=step, for_update=True)
        (gap,) = checks.read(log_prob_gap(models, batch, forward, sampled=sampled))
    tokens["columns"] = models.meter.tokens - before - tokens["gen"]
    with timed(seconds, "adv", clock), together():
        add_rewards(models.plan, batch, kl_coef)
        add_advantages(models.plan, batch)
    return Experience(batch, gap, forward, seconds, tokens)


def observe(
    models: Models,
    prompts: list[Example],
    step: int,
    kl_coef: float,
    *,
    stream: str,
) -> Batch:
    """A batch to look at, not to learn from: responses to `prompts`, columns up to `rewards`."""
    plan = models.plan
    samples, sampler = plan.recipe.config.rollout.samples, plan.base_sampler
    batch = collect(models, prompts, samples, stream=stream, step=step, sampler=sampler)
    add_columns(models, batch, stream=stream, step=step)
    add_rewards(plan, batch, kl_coef)
    return batch


@contextmanager
def timed(seconds: dict[str, float], name: str, clock: Callable[[], float]) -> Iterator[None]:
    began = clock()
    yield
    seconds[name] = clock() - began
