"""How good a policy is on held-out prompts, sampled as in training, one sample a prompt."""

from typing import Any

from rlzoo.component import needs_of
from rlzoo.rollout import World, collect, draw
from rlzoo.stats import mean_interval, wilson


def evaluate(world: World, n: int) -> dict[str, Any]:
    """`eval/accuracy` where the task has a notion of right, and `eval/score`, with 95 % intervals.

    The same prompts and sampling noise each time, so evaluations of a run are paired. The tokens
    are counted apart from the run's budget.
    """
    rollout = world.plan.recipe.config.rollout
    size = rollout.prompts * rollout.samples  # no more rows at once than training has
    before = world.tokens
    correct = getattr(world.plan.task, "is_correct", None)
    examples = draw(world, "test", n, "eval", 0)
    scores: list[float] = []
    hits = cut = 0
    for start in range(0, n, size):
        batch = collect(
            world,
            examples[start : start + size],
            1,
            stream="eval",
            step=0,
            first_row=start,
            sampler=world.plan.base_sampler,
        )
        scores += batch["sequence_scores"].tolist()
        cut += int(batch["truncated"].sum())
        if correct is not None:
            right = correct(*(batch[name] for name in needs_of(correct)))
            # A cut-off answer is no answer.
            hits += int((right.to(batch["terminated"].device).bool() & batch["terminated"]).sum())
    tokens, world.tokens = world.tokens - before, before
    out: dict[str, Any] = {
        "eval/score": sum(scores) / n,
        "eval/samples": n,
        "eval/tokens": tokens,
        "eval/response_length": tokens / n,
        "eval/truncated": cut / n,
    }
    out["eval/score_low"], out["eval/score_high"] = mean_interval(scores)
    if correct is not None:
        out["eval/accuracy"] = hits / n
        out["eval/accuracy_low"], out["eval/accuracy_high"] = wilson(hits, n)
    return out


def headline(evaluation: dict[str, Any]) -> tuple[str, float, float, float]:
    """(what, value, low, high): the accuracy where there is one, else the score."""
    what = "accuracy" if "eval/accuracy" in evaluation else "score"
    value, low, high = (evaluation[f"eval/{what}{suffix}"] for suffix in ("", "_low", "_high"))
    return what, value, low, high
