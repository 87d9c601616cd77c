"""Processes of their own that start at once.

They are forked from one server that has imported torch and transformers already, and begin with the
environment and the folder of the test. A test of what an interpreter or a launcher does at its
start needs a real one instead: `helpers.launch`.
"""

import multiprocessing
import os
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

_server = multiprocessing.get_context("forkserver")
_server.set_forkserver_preload(
    ["rlzoo.cli", "rlzoo.train.start", "rlzoo_zoo", "transformers.models.llama.modeling_llama",
     "transformers.models.auto.tokenization_auto", "accelerate", "rich.progress"]
)  # fmt: skip


class Context:
    """As a context of multiprocessing, for code that asks for one."""

    Pipe = staticmethod(_server.Pipe)

    @staticmethod
    def Process(target, args=()):
        return _server.Process(target=_begin, args=(dict(os.environ), os.getcwd(), target, args))


def start(function, *args):
    """A process that calls an importable function; to be waited for, or killed."""
    process = Context.Process(function, args)
    process.start()
    return process


def finished(function, *args, timeout=120):
    """What a process said and how it ended that called `function`, as `subprocess.run` tells it."""
    with tempfile.TemporaryDirectory() as place:
        process = start(_heard, place, function, args)
        process.join(timeout)
        process.kill()
        process.join()
        said = [(Path(place) / name).read_text() for name in ("out", "err")]
        return subprocess.CompletedProcess(args, process.exitcode, *said)


def ranks(folder, *words_of, meanwhile=lambda started: None):
    """`rlzoo WORDS` as ranks of one run, each its words; (the worst exit status, what was said).
    meanwhile: gets their processes once they are started."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    started = [
        start(_rank, i, len(words_of), port, str(folder / f"rank{i}.log"), words)
        for i, words in enumerate(words_of)
    ]
    try:
        meanwhile(started)
        for process in started:
            process.join(timeout=240)
    finally:
        for process in started:
            process.kill()
            process.join()
    said = "".join((folder / f"rank{i}.log").read_text() for i in range(len(words_of)))
    return max(abs(process.exitcode) for process in started), said


def _begin(environment, folder, function, args):
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    function(*args)


def _heard(place, function, args):
    for number, name in ((1, "out"), (2, "err")):
        os.dup2(os.open(os.path.join(place, name), os.O_WRONLY | os.O_CREAT), number)
    sys.exit(function(*args))


def _rank(index, count, port, log, words):
    out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(out, 1)
    os.dup2(out, 2)
    os.environ |= {"RANK": f"{index}", "LOCAL_RANK": f"{index}", "WORLD_SIZE": f"{count}",
                   "LOCAL_WORLD_SIZE": f"{count}", "MASTER_ADDR": "127.0.0.1",
                   "MASTER_PORT": f"{port}"}  # fmt: skip
    from rlzoo.cli import main

    sys.exit(main(list(words)))
