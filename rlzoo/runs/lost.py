"""Finds missing data in a run's folder: lines of steps, evaluations, samples. No torch."""

from collections.abc import Collection, Iterable, Iterator
from contextlib import nullcontext

from rlzoo.runs.evaluations import evaluated_steps
from rlzoo.runs.folder import STEP, RunFolder


def lost(
    folder: RunFolder, steps: Iterable[int], evaluations: Collection[int], done: int, samples: int
) -> Iterator[str]:
    """A note for each file that lacks something of the first `done` steps.

    steps, evaluations: after which steps metrics.jsonl has a line, of either kind. samples: how
    many a step keeps.
    """
    if steps_text := _told(_missing(steps, done)):
        yield f"metrics.jsonl lacks the lines of {steps_text}"
    kept = evaluated_steps(folder)
    if steps_text := _told(sorted(kept.difference(evaluations, [done]))):
        yield f"metrics.jsonl lacks the evaluations after {steps_text}"
    if steps_text := _told(sorted({*evaluations} - kept)):
        yield f"evaluations/ has no results per prompt after {steps_text}"
    if samples and (steps_text := _told(_missing(_sampled(folder), done))):
        yield f"samples.jsonl has no samples from {steps_text}"


def _missing(steps: Iterable[int], done: int) -> list[int]:
    """The steps from 1 to `done` that are missing; uses one byte per step."""
    seen = bytearray(done + 1)
    for step in steps:
        if step <= done:
            seen[step] = 1
    return [step for step in range(1, done + 1) if not seen[step]]


def _sampled(folder: RunFolder) -> Iterator[int]:
    path = folder.path / "samples.jsonl"
    with open(path, "rb") if path.exists() else nullcontext(()) as lines:
        yield from (int(match[1]) for raw in lines if (match := STEP.match(raw)))


def _told(steps: list[int]) -> str:
    """`step 3`, or `5 steps, the first 3`."""
    if len(steps) < 2:
        return "".join(f"step {n}" for n in steps)
    return f"{len(steps)} steps, the first of which is {steps[0]}"
