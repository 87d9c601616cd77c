"""A sweep's worker that is stopped or hangs is noticed, named and replaced."""

import multiprocessing
import os
import signal
import threading
import time
from types import SimpleNamespace

import pytest

from rlzoo_zoo.executors import local as workers


class Heard:
    def __init__(self):
        self.said = []

    def news(self, job, word, *rest):
        self.said += [rest[0]] if word == "note" else []

    def failed(self, job, reason):
        self.said.append(f"failed: {reason}")

    def done(self, job, summary):
        self.said.append("done")

    def begin(self, job): ...


def serve(pipe, work, log, gpu):
    """In the place of a worker's own: hangs at its first try and is stopped at its second."""
    pipe = workers._Shared(pipe)
    threading.Thread(target=workers._beat, args=(pipe,), daemon=True).start()
    job = pipe.recv()
    pipe.send(("step", 0.5, 1, 0.0))
    if once(job.path, "hung"):
        time.sleep(600)
    if once(job.path, "stopped"):
        os.kill(os.getpid(), signal.SIGSTOP)
    pipe.send(("done", {}))
    pipe.recv()


def once(folder, name):
    there = (folder / name).exists()
    (folder / name).touch()
    return not there


@pytest.fixture
def job(tmp_path, monkeypatch):
    context = multiprocessing.get_context("fork")
    monkeypatch.setattr(workers.multiprocessing, "get_context", lambda method: context)
    monkeypatch.setattr(workers, "serve", serve)
    monkeypatch.setattr(workers, "BEAT", 0.2)
    return SimpleNamespace(name="lam=0.5--seed0", path=tmp_path, device="cpu")


def do(job, board, seconds):
    workers.Local(patience=seconds / 60).run([job], None, board, job.path, 1)


@pytest.mark.landing
def test_a_hung_and_a_stopped_worker_are_replaced(job, monkeypatch):
    monkeypatch.setattr(workers, "SILENT", 2.0)
    board = Heard()
    do(job, board, 3.0)
    assert board.said == [
        "its worker died (hung: there was no step for 3 s); another one continues the run",
        "its worker died (stopped: the process did not respond for 2 s); another one continues "
        "the run",
        "done",
    ]


@pytest.mark.landing
def test_a_run_that_always_hangs_has_failed(job, monkeypatch):
    monkeypatch.setitem(globals(), "once", lambda folder, name: True)
    monkeypatch.setattr(workers, "ATTEMPTS", 2)
    board = Heard()
    do(job, board, 1.0)
    assert "its worker died 2 times (hung: there was no step for" in board.said[-1]


def test_a_slow_run_is_left_alone(job, monkeypatch):
    crew = workers.Crew([job], 1, None, job.path, Heard(), patience=10.0)
    killed = []
    process = SimpleNamespace(kill=lambda: killed.append(1))
    monkeypatch.setattr(crew, "replace", lambda worker, how: None)
    slow = workers.Worker(process, None, job, heard=100.0, news=80.0, pace=2.0)
    crew.look_after(slow, 101.0)  # 21 s for a step, and one took 2 s before: 40 s are its due
    assert not killed
    slow.pace = 0.0
    crew.look_after(slow, 101.0)
    assert killed


@pytest.mark.parametrize(
    ("code", "name"), [(-9, "SIGKILL"), (-35, "signal 35"), (-64, "SIGRTMAX"), (3, "status 3")]
)
def test_whatever_ended_a_worker_has_a_name(code, name):
    assert name in workers._cause(code)
