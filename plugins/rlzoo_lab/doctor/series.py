"""Code shared by the doctor's rules: findings, thirds and trends of metrics, and reading a run."""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

import numpy as np

from rlzoo.runs.folder import RunFolder
from rlzoo.runs.metrics import (
    ACCURACY,
    GREEDY,
    REWARD,
    RIGHT,
    SCORE,
    SCORE_NOISE,
    SCORE_STD,
)
from rlzoo_lab.data.record import Record, read_record


@dataclass
class Finding:
    """A fault, the numbers that show it, one remedy, and the symptoms that follow (`so_too`)."""

    severity: str
    what: str
    advice: str
    evidence: dict[str, Any]
    rule: str = ""
    so_too: list[str] = field(default_factory=list)


def first(items: Sequence) -> Sequence:
    """The first third of the values, at least one value."""
    return items[: max(1, len(items) // 3)]


def last(items: Sequence) -> Sequence:
    """The last third of the values, at least one value."""
    return items[-max(1, len(items) // 3) :]


def trend(values: Sequence[float]) -> tuple[float, float]:
    """(last third minus first third, its standard error). The error comes from differences between
    neighboring values, so that a slope does not count as noise."""
    gaps = [(b - a) ** 2 for a, b in itertools.pairwise(values)]
    variance = fmean(gaps) / 2 if gaps else 0.0
    before, after = ends(values)
    return after - before, math.sqrt(2 * variance / len(first(values)))


def spans(run: Record, name: str) -> tuple[str, str]:
    """`steps 1 to 20`: the steps of the first and the last third of a metric."""
    numbers = run.steps_of(name)

    def span(third: Sequence[int]) -> str:
        return f"steps {third[0]} to {third[-1]}" if len(third) > 1 else f"step {third[0]}"

    return span(first(numbers)), span(last(numbers))


def ends(values: Sequence[float]) -> tuple[float, float]:
    """(mean of the first third, mean of the last)."""
    return fmean(first(values)), fmean(last(values))


def late(run: Record, name: str, default: float = math.nan) -> float:
    """The mean of a metric's last third."""
    values = run.series(name)
    return fmean(last(values)) if values else default


def early(run: Record, name: str, default: float = math.nan) -> float:
    """The mean of a metric's first third."""
    values = run.series(name)
    return fmean(first(values)) if values else default


def _of_reward(run: Record) -> tuple[float, float]:
    values = run.series(REWARD)
    return trend(values) if len(values) >= 2 else (0.0, 0.0)


def rises(run: Record) -> bool:
    """Whether the training reward rises by more than its noise."""
    change, error = _of_reward(run)
    return change > max(0, 2 * error)


def accuracies(run: Record) -> list[float]:
    """Held-out accuracy at each evaluation that has one."""
    return [line[ACCURACY] for line in run.evaluations if ACCURACY in line]


def every(run: Record) -> int:
    """Steps per recorded line: a trainer may log only every n-th, as a mean over n."""
    numbers = run.steps_of(REWARD) or [0, 1]
    return max(1, round((numbers[-1] - numbers[0]) / max(1, len(numbers) - 1)))


def optimizer_steps(run: Record) -> int:
    """At least this many steps of the optimizer: a trainer may not record how many there are."""
    each = (run.known("train.epochs") or 1) * (run.known("train.minibatches") or 1)
    return len(run.series(REWARD)) * every(run) * each


def rounded(run: Record) -> bool:
    """Whether another trainer wrote at most three decimals, so that 0 may be any small number."""
    found = (x for name in run.steps.names() for x in run.series(name))
    return bool(run.trainer) and all(abs(x - round(x, 3)) <= 1e-6 * abs(x) for x in found)


def learning(run: Record) -> bool:
    """Whether the reward or the held-out result improves."""
    return run.improved or rises(run)


def severity(run: Record) -> str:
    """A cause that does not keep every run from learning."""
    return "warning" if learning(run) else "problem"


def worse(run: Record) -> bool:
    """Whether the reward or the held-out result falls by more than its noise."""
    change, error = _of_reward(run)
    return fallen(run) is not None or change < min(0, -3 * error)


def fallen(run: Record) -> tuple[str, Mapping[str, Any], Mapping[str, Any]] | None:
    """(metric, best evaluation, last evaluation) if the last is worse by 2.5 standard errors of the
    difference, or by 1.4 if greedy decoding also became worse."""
    if len(run.evaluations) < 2:
        return None
    final = run.evaluations[-1]
    what = ACCURACY if ACCURACY in final else SCORE
    best = max(run.evaluations, key=lambda e: e.get(what, -math.inf))
    lost = best.get(what, math.nan) - final.get(what, math.nan)
    halves = [e.get(f"{what}_high", math.inf) - e.get(f"{what}_low", -math.inf)
              for e in (best, final)]  # fmt: skip
    error = math.hypot(*halves) / 3.92  # each is 2 x 1.96 standard errors wide
    greedy = best.get(GREEDY, math.nan) - final.get(GREEDY, math.nan)
    apart = lost > 2.5 * error or (lost > 1.4 * error and greedy > max(error, 0.5 * lost))
    small = what == ACCURACY and lost < 0.05
    return (what, best, final) if apart and lost > 0 and not small else None


def rose_and_fell(run: Record) -> bool:
    """Whether the held-out result or the reward first improved and then lost it."""
    gone, values = fallen(run), run.series(REWARD)
    if gone is not None and gone[1]["step"] > run.evaluations[0]["step"]:
        return True
    n = len(values) // 3
    if n < 2:
        return False
    (before, after), error = ends(values), trend(values)[1]
    middle = fmean(values[n : 2 * n])
    return middle - before > 2 * error and middle - after > 3 * error


def right_or_wrong(run: Record) -> bool:
    """Whether the task can check answers."""
    return run.accuracy is not None or run.has(RIGHT)


def noise_share(run: Record) -> float:
    """The share of the scores' variance that is between identical responses to one prompt."""
    spread = late(run, SCORE_STD, 0.0)
    return min(1.0, (late(run, SCORE_NOISE, 0.0) / spread) ** 2) if spread > 1e-9 else 0.0


def says_yes_or_no(run: Record) -> bool:
    """Whether scores take two values: then their variance is (mean - min)(max - mean) or, divided
    by one row less, a little more."""
    mean, std, low, high = (dict(run.points(f"score/{x}")) for x in ("mean", "std", "min", "max"))
    prompts, each = (run.known(f"rollout.{key}") for key in ("prompts", "samples"))
    parts = [1.0, 1 - 1 / (prompts * each)] if prompts and each else [1.0]
    gaps = (
        min(abs(std[n] ** 2 * part - (mean[n] - low[n]) * (high[n] - mean[n]))
            for part in parts) / (high[n] - low[n]) ** 2
        for n in mean.keys() & std.keys() & low.keys() & high.keys() if high[n] - low[n] > 1e-6
    )  # fmt: skip
    return max(gaps, default=1.0) < 1e-4


def samples_alike(run: Record) -> bool:
    """Whether evaluations use the same sampling as training."""
    limit = run.key("eval.max_new_tokens") in (None, run.key("rollout.max_new_tokens"))
    keys = ("temperature", "top_k", "top_p")
    return limit and all(run.key(f"rollout.{k}") == run.key(f"eval.{k}") for k in keys)


def part(run: Record) -> tuple[float, float] | None:
    """(training minus held-out accuracy over the second half of the run, its standard error); None
    if either is missing or their sampling differs."""
    held = [e for e in run.evaluations if ACCURACY in e]
    if len(held) < 2 or not (samples_alike(run) and run.has(RIGHT)):
        return None
    at, values = run.steps_of(RIGHT), run.series(RIGHT)
    half = max(1, len(values) // 2)
    shown = np.interp(at[-half:], [e["step"] for e in held], [e[ACCURACY] for e in held])
    rows = min(64, run.key("rollout.prompts", 64) * run.key("rollout.samples", 1))
    mean = fmean(values[-half:])
    width = fmean(e[f"{ACCURACY}_high"] - e[f"{ACCURACY}_low"] for e in held[-2:]) / 3.92
    bent = float(np.ptp(shown)) / 4  # a line between evaluations is off where accuracy moves fast
    return mean - float(shown.mean()), math.hypot(width, bent, 0.5 / math.sqrt(rows * half / 2))


def judged(metric: str) -> bool:
    """Whether any rule reads a metric; other metrics are not kept in memory."""
    extreme = metric.endswith(("/min", "/max")) and not metric.startswith(("score/", "rewards/"))
    return metric in READ or not (extreme or metric.startswith(UNREAD))


READ = ("advantages/mean", "advantages/std", "advantages/max", "prompt_length/mean", "returns/max",
        "returns/min")  # fmt: skip
UNREAD = (
    "timing_s/", "tokens/", "perf/", "prompt_length/", "advantages/", "response_length/std",
    "critic/vf_explained_var/", "critic/vf_ceiling/",
)  # fmt: skip


def read_run(folder: RunFolder) -> Record:
    """A run's record; an unfinished run is listed among its troubles."""
    record = read_record(folder.path, judged, single=True)  # a run may have a million steps
    if not record.summary:
        done = record.steps[-1]["step"] if record.steps else 0
        planned = record.known("train.steps")
        of = f" of {planned}" if planned else ""
        record.troubles.append(
            f"the run is not finished: step {done}{of}. It may still be running; otherwise "
            f"`rlzoo resume {folder.path}` continues it"
        )
    elif record.trainer and (n := every(record)) > 1:
        record.troubles.append(f"it has a line every {n} steps, perhaps of means over them")
    return record
