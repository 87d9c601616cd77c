"""The process in which tools run: a call per line of stdin, its result per line of stdout. It
imports no torch, and ends itself where a call takes too long."""

import importlib
import importlib.util
import os
import signal
import sys
import threading
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from rlzoo_zoo.rewards.math_worker import serve


def run(job: dict[str, Any]) -> dict[str, str]:
    """The text of a call's result, or of its error. Beyond `wall` seconds the process ends."""
    signal.setitimer(signal.ITIMER_PROF, 0)  # an import may take its time
    call = function(job["module"], job["file"], job["name"])
    signal.setitimer(signal.ITIMER_PROF, job["timeout"])
    guard = threading.Timer(job["wall"], os._exit, (1,))
    guard.start()
    try:
        result = call(**job["arguments"])
        return {"text": str(result)[: job["characters"]]}
    except Exception as error:  # a tool may raise anything: the policy reads it
        return {"text": f"error: {type(error).__name__}: {error}"[: job["characters"]]}
    finally:
        guard.cancel()


@lru_cache
def function(module: str, file: str, name: str) -> Callable[..., Any]:
    """A function by its module, or by its file where the module has another name here."""
    spec = importlib.util.find_spec(module) if module in sys.modules or _known(module) else None
    if spec is not None and spec.origin == file:
        return getattr(importlib.import_module(module), name)
    spec = importlib.util.spec_from_file_location(f"tools_{abs(hash(file))}", file)
    if spec is None or spec.loader is None:
        raise ImportError(f"cannot import {file}")
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return getattr(found, name)


def _known(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):
        return False


if __name__ == "__main__":
    serve(run)
