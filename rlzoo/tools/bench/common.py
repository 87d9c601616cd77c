"""What both sides of a comparison share: reward, clock, memory.

Standard library alone: TRL's side loads it by its path, in an interpreter that need not have rlzoo.
"""

import resource
import zlib
from pathlib import Path
from typing import Any


def reward(prompts: list[str], responses: list[str], answers: Any = None) -> list[float]:
    """1 for about one response in six, by its text alone: a mixed signal that no learning moves,
    equal for whoever samples. About a quarter of the groups of eight have none."""
    return [
        float(zlib.crc32(f"{p}|{r}".encode()) % 6 == 0)
        for p, r in zip(prompts, responses, strict=True)
    ]


def cpu_seconds() -> float:
    """User and system time of this process, all its threads."""
    use = resource.getrusage(resource.RUSAGE_SELF)
    return use.ru_utime + use.ru_stime


def peak_mb() -> float:
    """The most memory that this process has held, in MiB. Linux's own mark where there is one: the
    other starts from the parent's, if the parent was larger."""
    return _mark("VmHWM:") or resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def held_mb() -> float | None:
    """The memory that this process holds now, in MiB, where the system tells."""
    return _mark("VmRSS:")


def _mark(name: str) -> float | None:
    status = Path("/proc/self/status")
    lines = status.read_text().splitlines() if status.is_file() else []
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith(name)), None)
