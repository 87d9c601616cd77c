"""Code that both sides of a comparison share: reward, clock, memory.

Standard library only, because TRL's side loads it by its path in an interpreter that may not have
rlzoo.
"""

import gc
import resource
import time
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

Spec = Mapping[str, Any]
Sample = dict[str, Any]  # tokens, cpu, wall, and whatever else a case reports
Told = dict[str, Any]  # samples, and whatever else there is to report


def reward(prompts: list[str], responses: list[str], answers: Any = None) -> list[float]:
    """Returns 1 for about one response in six, depending only on its text: a mixed signal that
    training does not change and that is equal for every sampler. About a quarter of the groups of
    eight have no signal."""
    return [
        float(zlib.crc32(f"{p}|{r}".encode()) % 6 == 0)
        for p, r in zip(prompts, responses, strict=True)
    ]


def cpu_seconds() -> float:
    """User and system time of this process and all its threads."""
    use = resource.getrusage(resource.RUSAGE_SELF)
    return use.ru_utime + use.ru_stime


def peak_mb() -> float:
    """The most memory that this process has held, in MiB. Uses Linux's high-water mark if
    available, because the portable one starts from the parent's peak if that was larger."""
    return _mark("VmHWM:") or resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def held_mb() -> float | None:
    """The memory that this process holds now, in MiB, where the system reports it."""
    return _mark("VmRSS:")


def _mark(name: str) -> float | None:
    status = Path("/proc/self/status")
    lines = status.read_text().splitlines() if status.is_file() else []
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith(name)), None)


def measure(
    once: Callable[[int], Sample], spec: Spec, clock: Callable[[], float] = time.perf_counter
) -> Told:
    """`repeat` calls of `once(i)`, which reports its tokens, after `warmup` unmeasured ones."""
    samples = []
    for i in range(spec["warmup"] + spec["repeat"]):
        if i == spec["warmup"]:
            gc.collect()
        cpu, wall = cpu_seconds(), clock()
        sample = once(i)
        sample["cpu"], sample["wall"] = cpu_seconds() - cpu, clock() - wall
        samples.append(sample)
    return {"samples": samples[spec["warmup"] :]}


def steps_of(trainer: Any) -> Callable[[int], Sample]:
    """A training step: its tokens and the time of each phase."""
    meter = trainer.world.engine.meter

    def once(i: int) -> Sample:
        before = meter.tokens
        _, metrics = trainer.step()
        phases = {k[9:]: v for k, v in metrics.items() if k.startswith("timing_s/")}
        return {"tokens": meter.tokens - before, "phases": phases}

    return once
