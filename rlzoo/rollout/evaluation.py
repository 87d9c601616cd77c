"""How good a policy is on held-out prompts, sampled as in training."""

from collections.abc import Iterator
from typing import Any

from torch import Tensor

from rlzoo.lm.models import Models
from rlzoo.mdp.batch import Batch
from rlzoo.plugin.border import border
from rlzoo.plugin.call import own
from rlzoo.plugin.component import needs_of
from rlzoo.recipe.plan import Plan
from rlzoo.rollout.sample import collect, draw
from rlzoo.runs.metrics import headline as headline
from rlzoo.stats import mean_interval, wilson


def evaluate(models: Models, n: int) -> dict[str, Any]:
    """`eval/accuracy` where the task has a notion of right, and `eval/score`, with 95 % intervals;
    the mean of each reward by itself.

    One sample a prompt. The same prompts and sampling noise each time, so evaluations of a run are
    paired. The tokens are counted apart from the run's budget.
    """
    scores: list[float] = []
    parts = dict.fromkeys(models.plan.rewards, 0.0)
    hits: int | None = None
    cut = 0
    with models.meter.apart() as meter:
        for batch in held_out(models, n):
            scores += batch["sequence_scores"].tolist()
            for name, part in zip(parts, batch["score_components"].sum(0).tolist(), strict=True):
                parts[name] += part
            cut += int(batch["truncated"].sum())
            right = right_rows(models.plan, batch)
            if right is not None:
                hits = (hits or 0) + int(right.sum())
    out: dict[str, Any] = {
        "eval/score": sum(scores) / n,
        "eval/samples": n,
        "eval/tokens": meter.tokens,
        "eval/response_length": meter.tokens / n,
        "eval/truncated": cut / n,
    }
    out["eval/score_low"], out["eval/score_high"] = mean_interval(scores)
    out |= {f"eval/reward/{name}": part / n for name, part in parts.items()}
    if hits is not None:
        out["eval/accuracy"] = hits / n
        out["eval/accuracy_low"], out["eval/accuracy_high"] = wilson(hits, n)
    return out


def held_out(
    models: Models, n: int, samples: int = 1, *, split: str = "test", stream: str = "eval"
) -> Iterator[Batch]:
    """Batches of `samples` responses to each of n prompts: all prompts once, then once more, ...

    Sample j of prompt i is row j * n + i to the noise, however many rows make a batch; so more
    samples leave the first ones as they are.
    """
    rollout = models.plan.recipe.config.rollout
    size = rollout.prompts * rollout.samples  # no more rows at once than training has
    examples = draw(models, split, n, stream, 0)
    for first in range(0, n * samples, n):
        for start in range(0, n, size):
            yield collect(
                models,
                examples[start : start + size],
                1,
                stream=stream,
                step=0,
                first_row=first + start,
                sampler=models.plan.base_sampler,
            )


def right_rows(plan: Plan, batch: Batch) -> Tensor | None:
    """Which responses are right (B,) bool; None where the task has no notion of right."""
    correct = getattr(plan.task, "is_correct", None)
    if correct is None:
        return None
    with border(f"task {plan.task_name!r}: is_correct"):
        right = correct(*(own(batch[name]) for name in needs_of(correct)))
    # A cut-off answer is no answer.
    return right.to(batch["terminated"].device).bool() & batch["terminated"]
