"""The process in which the reward `math_verify` does its mathematics: a job per line of stdin, a
verdict per line of stdout. It imports no torch, and ends itself where a job takes too much."""

import json
import os
import resource
import signal
import sys
from collections.abc import Callable
from typing import Any

MEMORY = 4 * 2**30  # bytes of address space


def serve(judge: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """Answer jobs until stdin ends. `judge` has its libraries imported: memory is limited here.

    It starts with signals blocked (`worker.signals_blocked`); its own limits end it.
    """
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # libraries' output is not a verdict
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    print("ready", file=out, flush=True)
    for line in sys.stdin:
        job = json.loads(line)
        # Seconds of CPU: a busy machine, or a run that is stopped for a while, changes no score.
        # The process has no handler for this signal, which ends it whatever it computes.
        signal.setitimer(signal.ITIMER_PROF, job["timeout"])
        reply = judge(job)
        signal.setitimer(signal.ITIMER_PROF, 0)
        print(json.dumps(reply), file=out, flush=True)


def judge(job: dict[str, Any]) -> dict[str, Any]:
    """The verdict on a response; where that is None, whether all answers can be read."""
    from math_verify import parse, verify

    only_read = job["response"] is None
    result = [] if only_read else parse(job["response"], parsing_timeout=None)
    for answer in job["answers"]:
        delimited = any(mark in answer for mark in ("$", "\\boxed", "\\(", "\\["))
        gold = parse(answer if delimited else f"${answer}$", parsing_timeout=None)
        if not gold:
            return {"error": f"the answer {answer!r} cannot be read as mathematics"}
        if not only_read and verify(gold, result, timeout_seconds=None):
            return {"right": True}
    return {"right": only_read}


if __name__ == "__main__":
    import math_verify  # noqa: F401  (before memory is limited)

    serve(judge)
