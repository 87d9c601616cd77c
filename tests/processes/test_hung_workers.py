"""A sweep's worker that is stopped or hangs is noticed, named and replaced."""

import json

import pytest

from helpers.forks import Context, start
from rlzoo.tools.sweep import workers
from rlzoo.tools.sweep.board import Board
from rlzoo.tools.sweep.plan import plan_sweep

SOURCE = '''
import os, signal, time
from pathlib import Path
from rlzoo import hookimpl

class Trouble:
    """Hangs once, stops its process once.  Source: a test."""
    def __init__(self, path): ...
    def log(self, metrics):
        if metrics["step"] == 1 and once("hung"):
            time.sleep(600)
        if metrics["step"] == 2 and once("stopped"):
            os.kill(os.getpid(), signal.SIGSTOP)
    def close(self): ...

def once(name):
    mark = Path(__file__).with_name(name)
    there = mark.exists()
    mark.touch()
    return not there

@hookimpl
def register_loggers(register):
    register(Trouble)
'''


class Heard(Board):
    def __init__(self):
        self.said = []

    def say(self, line, style=""):
        self.said.append(line)

    def begin(self, job): ...
    def done(self, job, summary): ...
    def failed(self, job, reason):
        self.said.append(f"failed: {reason}")


def test_a_hung_and_a_stopped_worker_are_replaced(tmp_path, model_dir, monkeypatch):
    (tmp_path / "trouble.py").write_text(SOURCE)
    monkeypatch.setenv("RLZOO_PLUGINS", str(tmp_path / "trouble.py"))
    monkeypatch.setattr(workers.multiprocessing, "get_context", lambda method: Context)
    monkeypatch.setattr(workers, "SILENT", 6.0)
    start(int).join()  # the server that workers are forked from takes seconds to begin
    from rlzoo.plugin.registry import load_zoo

    words = [
        "recipe=ppo_gae", "seed=0", f"model.path={model_dir}", "device=cpu", "rollout.prompts=2",
        "rollout.samples=2", "rollout.max_new_tokens=4", "train.steps=3", "eval.samples=2",
        "checkpoint.every=1", "loggers=[trouble]", "estimator.lam=0.5,0.9",
    ]  # fmt: skip
    sweep = plan_sweep(words, load_zoo(), str(tmp_path / "s"))
    (tmp_path / "s").mkdir()
    board = Heard()
    job = sweep.jobs[0]
    workers.run_all([job], 1, sweep.path, board, patience=15.0)
    told = " ".join(board.said)
    assert "its worker died (hung: no step in 15 s); another takes it up" in told
    assert "its worker died (stopped: no sign of life in 6 s); another takes it up" in told
    assert json.loads((job.path / "summary.json").read_text())["steps"] == 3


@pytest.mark.parametrize(
    ("code", "name"), [(-9, "SIGKILL"), (-35, "signal 35"), (-64, "SIGRTMAX"), (3, "status 3")]
)
def test_whatever_ended_a_worker_has_a_name(code, name):
    assert name in workers._cause(code)
