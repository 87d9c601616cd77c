"""Decides from a run's lines which evaluation was best, whether training ends early, and whether it
can learn.

The decisions depend only on metrics.jsonl, so that a resumed run decides as if it had never been
interrupted.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from rlzoo.recipe.keys import Stop
from rlzoo.rollout.evaluation import headline
from rlzoo.runs.metrics import ACCURACY, NO_SIGNAL, REWARD, SCORE_STD

KL = "actor/ref_kl_per_response"  # in a step's line where the plan needs one of these columns:


def best(evaluations: Iterable[Mapping[str, float]]) -> Mapping[str, float]:
    """The evaluation with the highest headline; the earliest if several are equal."""
    return max(evaluations, key=lambda line: headline(line)[1])  # the first of equals


def reason(
    stop: Stop, evaluations: Sequence[Mapping[str, float]], last: Mapping[str, float] | None
) -> str | None:
    """Why training ends now; None if it continues.

    stop: the recipe's section; evaluations: so far, the one before training first; last: the last
    step's line, None before the first. The rule on the KL comes first: an evaluation that is made
    because of it cannot change the answer.
    """
    if stop.max_kl is not None and last is not None and last[KL] > stop.max_kl:
        return f"KL to the reference ({last[KL]:.3g} nats per response) exceeds {stop.max_kl:g}"
    what, value, *_ = headline(evaluations[-1])
    if stop.target is not None and value >= stop.target:
        return f"{what} {value:.3f} reached the target {stop.target:g}"
    if stop.patience is not None:
        mark, since = headline(evaluations[0])[1], 0
        for line in evaluations[1:]:
            value = headline(line)[1]
            if value > mark and value >= mark + stop.min_delta:
                mark, since = value, 0
            else:
                since += 1
        if since >= stop.patience:
            least = f" by {stop.min_delta:g}" if stop.min_delta else ""
            return f"{what} did not exceed {mark:.3f}{least} in {since} evaluations"
    return None


FLAT = 10  # steps in a row


@dataclass
class Flat:
    """Reports once that nothing can be learned: `FLAT` steps in a row whose responses all
    score the same, or, without a critic, whose groups each do.

    critic: whether there is one; it compares with what it expected, not within the group.
    """

    critic: bool
    steps: int = 0
    reported: bool = False

    def hear(
        self, line: Mapping[str, float], evaluations: Sequence[Mapping[str, float]]
    ) -> str | None:
        """The report after a step; usually None."""
        same = line[SCORE_STD] < 1e-8
        groups = not self.critic and line[NO_SIGNAL] >= 1
        self.steps = self.steps + 1 if same or groups else 0
        if self.reported or self.steps < FLAT:
            return None
        self.reported = True
        if evaluations and evaluations[-1].get(ACCURACY, 0.0) >= 0.95:
            return (
                f"nearly every sample of the last {FLAT} steps is correct, so there is little "
                "left to learn: stop here (Ctrl-C), or use harder prompts"
            )
        score = f"had the same score ({line[REWARD]:.3g})"
        alike = f"a step {score}" if same else "a prompt were alike"
        return (
            f"for {FLAT} steps all samples of {alike}, so nothing can be learned: read "
            "samples.jsonl; use prompts that are sometimes answered correctly, or more samples per "
            "prompt (rollout.samples)"
        )
