"""Mathematics: the response's result equals the answer, by the library math-verify."""

import atexit
import contextlib
import importlib.util
import json
import os
import subprocess
import sys
import threading
from typing import Annotated, Any

import torch

from rlzoo import Range, RlzooError, hookimpl
from rlzoo_zoo.rewards.exact_match import accepted


def math_verify(
    responses,
    answers,
    *,
    timeout: Annotated[float, Range(0.1), "seconds for one response"] = 5.0,
):
    r"""1 where the response's result is mathematically the answer, else 0, (B,).

    The result is what math-verify finds in the response: in `\boxed{}`, in LaTeX, or a plain number
    or expression near the end. `\frac{2}{4}`, `0.5` and `1/2` are equal, so are sets in any order
    and `x=3` and `3`. The answer is read likewise, as LaTeX where it has no delimiters; one that
    cannot be read is an error; of a list any is right. It runs in a process of its own, which ends
    itself when a response takes longer than `timeout` or than 4 GB: that response scores 0, the
    others are not touched. Nothing of a response is executed: expressions are parsed, and only
    digits and operators are computed. Breaks on answers that are words, and near the timeout,
    where scores depend on the machine.
    Source: huggingface/Math-Verify; Cobbe et al. 2021, arXiv:2110.14168.
    """
    refuse_missing()
    return torch.tensor(verdicts(responses, answers, timeout), dtype=torch.float32)  # (B,)


def verdicts(responses, answers, timeout: float = 5.0) -> list[bool]:
    return [
        _WORKER.ask({"answers": accepted(a), "response": r, "timeout": timeout})
        for r, a in zip(responses, answers, strict=True)
    ]


def refuse_missing(**_: Any) -> None:
    if importlib.util.find_spec("math_verify") is None:
        raise RlzooError("needs math-verify: pip install 'rlzoo-llm[verify]'")


class Worker:
    """The process of `module`, which works with a library: started when first asked, and again
    when it died.

    Not signals or threads in this one: they work in the main thread alone, and neither stops a
    multiplication of huge integers or a search by `re`.
    """

    def __init__(self, module: str, library: str):
        self.module, self.library = module, library
        self.lock = threading.Lock()
        self.process: subprocess.Popen | None = None
        self.owner = 0

    def ask(self, job: dict[str, Any]) -> bool:
        with self.lock:
            if self.process is None or self.owner != os.getpid():  # a fork shares no worker
                self.start()
            reply = self.exchange(json.dumps(job))
            if not reply:  # it ended itself: too long, or out of memory
                self.stop()
                return False
        found = json.loads(reply)
        if "error" in found:
            raise ValueError(found["error"])
        return found["right"]

    def start(self) -> None:
        # -P: the current folder's modules are none of its business.
        command = [sys.executable, "-P", "-m", f"rlzoo_zoo.rewards.{self.module}"]
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            encoding="utf-8",
        )
        self.owner = os.getpid()
        if self.process.stdout.readline() != "ready\n":  # type: ignore[union-attr]
            self.stop()
            raise RlzooError(
                f"{self.library} does not start; try: python -c 'import {self.library}'"
            )

    def exchange(self, job: str) -> str:
        """The reply, or nothing where the process is no more."""
        assert self.process is not None
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.write(job + "\n")
            self.process.stdin.flush()
        return self.process.stdout.readline()

    def stop(self) -> None:
        if self.process is not None and self.owner == os.getpid():
            self.process.kill()
            self.process.communicate()
        self.process = None


_WORKER = Worker("math_worker", "math_verify")
atexit.register(_WORKER.stop)


@hookimpl
def register_rewards(register):
    register(math_verify, check=refuse_missing)
