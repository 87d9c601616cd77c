"""Where a run's output goes: a full disk, a terminal that was closed, what components print."""

import json
import os
import signal
import sys

import pytest

from helpers.forks import finished

WORDS = ["rollout.prompts=2", "rollout.samples=2", "rollout.max_new_tokens=4", "train.steps=3",
         "train.minibatches=1", "eval.samples=4", "checkpoint.every=1", "device=cpu"]  # fmt: skip


def rlzoo_into(place, words):
    """`rlzoo WORDS > place`, and no less for stderr where that is full, too."""
    from rlzoo.cli import main

    handle = os.open(place, os.O_WRONLY)
    os.dup2(handle, 1)
    if "--stderr-too" in words:
        words.remove("--stderr-too")
        os.dup2(handle, 2)
    return main(words)


@pytest.mark.parametrize("more", [[], ["--stderr-too"]])
def test_a_full_disk_under_what_is_printed_ends_no_run(more, model_dir, tmp_path):
    place = tmp_path / "run"
    words = ["run", "recipe=grpo", *WORDS, f"model.path={model_dir}", f"run.dir={place}", *more]
    end = finished(rlzoo_into, "/dev/full", words)
    assert end.returncode == 0, end.stderr
    assert json.loads((place / "summary.json").read_text())["steps"] == 3
    assert len(list((place / "checkpoints").glob("step-*"))) == 2
    if not more:
        assert end.stderr.count("the run continues") == 1
        # What is asked for alone, and cannot be written, is a failure.
        assert finished(rlzoo_into, "/dev/full", ["recipes"]).returncode == 1


def closed_terminal(words):
    """`rlzoo WORDS` in a terminal that is closed at step 2."""
    from rlzoo.cli import main
    from rlzoo_lab.view.display.live import Panelled, Plain

    ours, theirs = os.openpty()
    os.setsid()
    for number in (1, 2):
        os.dup2(theirs, number)
    os.close(theirs)
    for kind in (Panelled, Plain):
        shown = kind.step

        def step(self, line, progress, shown=shown):
            shown(self, line, progress)
            if line["step"] == 2:
                os.close(ours)
                os.kill(os.getpid(), signal.SIGHUP)

        kind.step = step
    sys.stdout, sys.stderr = open(1, "w"), open(2, "w")  # noqa: SIM115
    os._exit(main(words))  # nothing is flushed by whoever started this


def test_a_run_whose_terminal_is_closed_ends_with_a_checkpoint(model_dir, tmp_path):
    place = tmp_path / "run"
    words = ["run", "recipe=grpo", *WORDS, f"model.path={model_dir}", f"run.dir={place}"]
    end = finished(closed_terminal, [*words, "checkpoint.every=0"])
    assert end.returncode == 128 + signal.SIGHUP, end
    assert [p.name for p in (place / "checkpoints").iterdir()] == ["step-00000002"]


LOUD = """
import ctypes, os, subprocess, sys
from rlzoo import hookimpl

os.write(1, b"GARBAGE import\\n")

def loud(responses):
    '''Source: a test.'''
    print("GARBAGE print")
    os.write(1, b"GARBAGE write\\n")
    sys.__stdout__.write("GARBAGE held back\\n")
    ctypes.CDLL(None).printf(b"GARBAGE of C\\n")
    subprocess.run(["echo", "GARBAGE process"])
    return [0.0] * len(responses)

@hookimpl
def register_rewards(register):
    register(loud)
"""


def run_json(words):
    from rlzoo.cli import main

    status = main(words)
    sys.stdout.flush()
    import ctypes

    ctypes.CDLL(None).fflush(None)  # as at an exit
    return status


def test_what_components_print_is_not_in_the_document(model_dir, tmp_path, monkeypatch):
    (tmp_path / "loud.py").write_text(LOUD)
    monkeypatch.setenv("RLZOO_PLUGINS", str(tmp_path / "loud.py"))
    words = ["run", "recipe=grpo", *WORDS, f"model.path={model_dir}", "rewards=loud",
             f"run.dir={tmp_path / 'run'}", "--json"]  # fmt: skip
    end = finished(run_json, words)
    assert end.returncode == 0, end.stderr
    assert json.loads(end.stdout)["steps"] == 3
    for how in ("import", "print", "write", "held back", "of C", "process"):
        assert f"GARBAGE {how}" in end.stderr, how
