"""A run that is killed, and killed again, ends as one that never was; so does one whose group of
processes is signalled."""

import contextlib
import os
import random
import signal
import sys
import threading
import time

import pytest
import torch
from safetensors.torch import load_file

from helpers.forks import finished, start
from helpers.grids import grid
from helpers.micro import words_of
from helpers.runs import lines, untimed
from rlzoo.cli import main


@pytest.mark.landing
def test_killed_at_random_moments_and_resumed_the_metrics_are_the_same(words, tmp_path):
    """SIGKILL, ten times; then on to the end: as a run that was never interrupted."""
    words = [
        "run", "recipe=ppo_gae", *words, "train.steps=40", "eval.every=7", "checkpoint.every=2",
        "loggers=csv", "kl.controller=adaptive", "actor.lr_schedule=cosine",
        "rollout.staleness=2",
    ]  # fmt: skip
    assert main([*words, f"run.dir={tmp_path / 'whole'}"]) == 0
    generator = torch.Generator().manual_seed(0)
    killed = 0
    cut = [*words, f"run.dir={tmp_path / 'cut'}"]
    while killed < 10:
        process = start(main, cut)
        time.sleep(0.1 + 0.9 * float(torch.rand((), generator=generator)))
        process.kill()
        process.join()
        killed += 1
        if (tmp_path / "cut" / "summary.json").exists():
            break
        if (tmp_path / "cut" / "recipe.yaml").exists():
            cut = ["resume", str(tmp_path / "cut")]
    if not (tmp_path / "cut" / "summary.json").exists():
        assert main(cut) == 0
    assert killed >= 3
    assert untimed(tmp_path / "cut") == untimed(tmp_path / "whole")
    assert lines(tmp_path / "cut", "samples.jsonl") == lines(tmp_path / "whole", "samples.jsonl")
    a, b = (load_file(tmp_path / n / "model" / "model.safetensors") for n in ("cut", "whole"))
    assert all(torch.equal(a[k], b[k]) for k in b)


def in_a_terminal(tty, words):
    """`rlzoo WORDS` in a session of its own, in the terminal `tty`."""
    os.setsid()
    terminal = os.open(tty, os.O_RDWR)  # the session's from here on
    for number in range(3):
        os.dup2(terminal, number)
    sys.stdin, sys.stdout, sys.stderr = open(0), open(1, "w"), open(2, "w")  # noqa: SIM115
    os._exit(main(words))


def drained(terminal):
    with contextlib.suppress(OSError):
        while os.read(terminal, 4096):
            pass


@pytest.mark.parametrize(
    "how", ["SIGTERM", *(pytest.param(x, marks=pytest.mark.landing)
                        for x in ("SIGHUP", "SIGXCPU", "SIGINT", "hang-up"))]
)  # fmt: skip
def test_a_signal_to_the_whole_group_changes_no_score(how, words, tmp_path):
    """Also to the process that the reward judges in; then on to the end."""
    draw = random.Random(how)
    words = [
        "run", "grpo", *words, "checkpoint.every=0", "train.steps=12", "rewards=[python]",
        "rewards.python.function=helpers.rewards_for_tests:judged_at_length",
    ]  # fmt: skip
    assert main([*words, f"run.dir={tmp_path / 'whole'}"]) == 0
    cut, terminal = tmp_path / "cut", os.openpty()
    process = start(in_a_terminal, os.ttyname(terminal[1]), [*words, f"run.dir={cut}"])
    while not (cut / "samples.jsonl").exists():
        assert process.is_alive()
        time.sleep(0.002)
    time.sleep(draw.random() * 0.2)
    if how == "hang-up":
        os.close(terminal[0])
    else:  # a terminal that nobody reads is full after some progress
        threading.Thread(target=drained, args=terminal[:1], daemon=True).start()
        os.killpg(process.pid, signal.Signals[how])
    process.join(180)
    assert process.exitcode == 128 + getattr(signal, how, signal.SIGHUP)
    assert main(["resume", str(cut)]) == 0
    assert untimed(cut) == untimed(tmp_path / "whole")


def signalled(where, number, words):
    """`rlzoo WORDS`, which gets a signal outside its steps."""
    from rlzoo.train import loop, record

    inner, calls = getattr(loop, where), []

    def outer(*args):
        calls.append(args)
        if where == "build_world" or len(calls) == 2:  # the evaluation at the end
            os.kill(os.getpid(), number)
        return inner(*args)

    for module in (loop, record):  # the best policy and the last one are saved in two places
        if hasattr(module, where):
            setattr(module, where, outer)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    return main(words)


@pytest.fixture(scope="module")
def whole(model_dir, tmp_path_factory):
    """The words of a run, and its metrics where no signal comes."""
    words = ["run", "grpo", *words_of(model_dir), "checkpoint.every=0"]
    folder = tmp_path_factory.mktemp("whole") / "run"
    assert main([*words, f"run.dir={folder}"]) == 0
    return words, untimed(folder)


@pytest.mark.parametrize(
    ("where", "name"),
    [("save_model", "SIGTERM"),
     *grid(["build_world", "evaluate"], ["SIGTERM", "SIGHUP", "SIGXCPU", "SIGINT"],
           always=lambda where, name: where == "evaluate" or name in ("SIGTERM", "SIGINT"))],
)  # fmt: skip
def test_a_signal_outside_the_steps_ends_with_a_line(where, name, whole, tmp_path):
    """While the model loads, in the evaluation at the end; the run goes on from there."""
    number, cut = getattr(signal, name), tmp_path / "cut"
    words, metrics = whole
    if where == "save_model":
        words = [*words, "checkpoint.best=true"]  # it is called after that
    end = finished(signalled, where, number, [*words, f"run.dir={cut}"])
    assert end.returncode == 128 + number, end
    said = [line for line in end.stderr.splitlines() if "rlzoo: warning:" not in line]
    assert len(said) == 1, said
    assert f"`rlzoo resume {cut}` continues the run" in said[0]
    assert main(["resume", str(cut)]) == 0
    assert untimed(cut) == metrics
    assert not any(p.name.startswith(".") for p in cut.iterdir())


def hurried(words):
    """`rlzoo WORDS`; SIGTERM while the model loads, Ctrl-C while the run releases its lock."""
    from rlzoo.runs import lock

    unlink = os.unlink

    def another(path, *rest, **more):
        if str(path).endswith(".lock") and armed:
            armed.clear()
            os.kill(os.getpid(), signal.SIGINT)
        unlink(path, *rest, **more)

    armed = [True]
    lock.os.unlink = another
    return signalled("build_world", signal.SIGTERM, words)


def test_the_first_of_two_signals_says_how_to_go_on(words, tmp_path):
    end = finished(hurried, ["run", "grpo", *words, f"run.dir={tmp_path / 'cut'}"])
    assert end.returncode == 128 + signal.SIGTERM, end
    assert f"rlzoo resume {tmp_path / 'cut'}" in end.stderr


def test_nor_is_one_a_plugin_s_fault(tmp_path, monkeypatch):
    """That comes while it is imported."""
    file = tmp_path / "slow.py"
    file.write_text("import os, signal\nos.kill(os.getpid(), signal.SIGTERM)\n")
    monkeypatch.setenv("RLZOO_PLUGINS", str(file))
    end = finished(main, ["plugins"])
    assert end.returncode == 128 + signal.SIGTERM, end
    assert end.stderr.count("\n") == 1


def swept(said, group, words):
    """`rlzoo sweep` in a group of its own, whose workers start at once; it writes to a file."""
    from rlzoo_zoo.executors import local

    out = os.open(said, os.O_WRONLY | os.O_CREAT)
    os.dup2(out, 1)
    os.dup2(out, 2)
    if group:
        os.setsid()
    fork = local.multiprocessing.get_context("fork")
    local.multiprocessing.get_context = lambda method: fork
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.exit(main(words))


@pytest.mark.parametrize(
    "name", ["SIGTERM", *(pytest.param(x, marks=pytest.mark.landing) for x in ("SIGHUP", "SIGINT"))]
)
@pytest.mark.parametrize("group", [True, False])
def test_a_signal_to_a_sweep_stops_its_runs_with_checkpoints(name, group, words, tmp_path):
    """To its process, or to the group with the workers, as a terminal and a scheduler do."""
    number = getattr(signal, name)
    words = [w for w in words if not w.startswith(("train.steps", "checkpoint"))]
    words = ["sweep", "ppo_gae", *words, "seed=0,1", "train.steps=100000", "checkpoint.every=0"]
    folder = tmp_path / "sweep"
    process = start(swept, str(tmp_path / "said"), group, [*words, "--dir", str(folder)])
    while len(list(folder.glob("*/samples.jsonl"))) < 2:
        assert process.is_alive(), (tmp_path / "said").read_text()
        time.sleep(0.01)
    time.sleep(0.1)
    (os.killpg if group else os.kill)(process.pid, number)
    process.join(60)
    said = (tmp_path / "said").read_text()
    assert process.exitcode == (1 if name == "SIGINT" else 128 + number), said
    assert "run the same command again to continue" in said.splitlines()[-1]
    assert "Traceback" not in said
    runs = [path.parent for path in folder.glob("*/samples.jsonl")]
    for run in runs:
        done = lines(run)[-1]["step"]
        assert [p.name for p in (run / "checkpoints").iterdir()] == [f"step-{done:08d}"]
