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
    before = world.tokens
    batch = collect(
        world,
        draw(world, "test", n, "eval", 0),
        1,
        stream="eval",
        step=0,
        sampler=world.plan.base_sampler,
    )
    out: dict[str, Any] = {
        "eval/score": batch["sequence_scores"].mean().item(),
        "eval/samples": n,
        "eval/tokens": world.tokens - before,
        "eval/response_length": batch["response_mask"].sum(1).mean().item(),
        "eval/truncated": batch["truncated"].float().mean().item(),
    }
    world.tokens = before
    out["eval/score_low"], out["eval/score_high"] = mean_interval(batch["sequence_scores"].tolist())
    correct = getattr(world.plan.task, "is_correct", None)
    if correct is not None:
        right = correct(*(batch[name] for name in needs_of(correct))).to(batch["terminated"].device)
        hits = int((right.bool() & batch["terminated"]).sum())  # a cut-off answer is no answer
        out["eval/accuracy"] = hits / n
        out["eval/accuracy_low"], out["eval/accuracy_high"] = wilson(hits, n)
    return out


def headline(evaluation: dict[str, Any]) -> tuple[str, float, float, float]:
    """(what, value, low, high): the accuracy where there is one, else the score."""
    what = "accuracy" if "eval/accuracy" in evaluation else "score"
    value, low, high = (evaluation[f"eval/{what}{suffix}"] for suffix in ("", "_low", "_high"))
    return what, value, low, high
