"""What a run shows: what it does now, its curve, runs that compare, that nothing can be learned."""

import io
import json
import os
import re
import shlex
import signal
import sys

import pytest
import torch

import rlzoo
from helpers.made_up_runs import made_up_run
from rlzoo.accel import device
from rlzoo.cli import main
from rlzoo.cli.run.command import make_display
from rlzoo.cli.run.lines import Lines, cells
from rlzoo.format.console import SafeConsole, doing
from rlzoo.runs.display import STOPPING, Silent
from rlzoo.runs.folder import RunFolder
from rlzoo.train.stopping import FLAT, Flat
from rlzoo_lab.view.display.live import Panelled, Plain, curve_text
from rlzoo_lab.view.display.tables import closing
from rlzoo_lab.view.terminal import rendered

LINE = {
    "step": 3, "reward/mean": 0.4, "score/std": 0.5, "critic/vf_explained_var": -16.59,
    "actor/entropy": 0.5, "actor/ref_kl_per_response": -0.0001, "actor/pg_clipfrac": 0.0,
    "response_length/mean": 4.0, "perf/tokens_per_second": 700.0,
}  # fmt: skip


class Plan:
    class recipe:
        name = "ppo_gae"

        class config:
            class model:
                name, path = "nano", ""

    task_name = "addition"


def panel(columns):
    file = io.StringIO()
    console = SafeConsole(file=file, force_terminal=True, width=columns, height=40)
    return Panelled(console), file


def plain(text):
    return re.sub(r"\x1b\[[\d;?]*\w", "", text)


def test_returns_that_do_not_vary_leave_nothing_to_explain():
    assert dict(cells(LINE))["explained var"] == "-16.59"
    same = dict(cells(LINE | {"score/std": 0.0}))
    assert same["explained var"] == "nothing to explain"
    assert dict(cells(LINE | {"score/std": 0.0, "critic/vf_explained_var": 0.9}))[
        "explained var"
    ] == "0.90"  # fmt: skip
    assert same["KL to ref"] == "0.000"  # no -0.000


@pytest.mark.parametrize("columns", [60, 80, 140])
def test_the_panel_names_what_goes_on_and_stays_with_its_curve(columns, tmp_path):
    shown, file = panel(columns)
    shown.start(Plan, RunFolder(tmp_path))
    for name in ("loading the model", "evaluating 1,024 held-out prompts", "sampling"):
        shown.phase(name)
        shown.live.refresh()
        assert name in plain(file.getvalue())
    shown.ready("60 k parameters, 1 CPU thread")
    for n in range(5):
        shown.step(LINE | {"step": n, "reward/mean": n / 4}, n / 4)
    shown.stopping()
    shown.phase("updating")  # does not hide that it stops
    shown.live.refresh()
    assert STOPPING[:20] in plain(file.getvalue())
    shown.close()
    last = plain(file.getvalue()).splitlines()
    end = max(i for i, line in enumerate(last) if line.startswith("╭"))
    assert any("▁" in line and "1.000" in line for line in last[end:])
    # The ^C that a terminal echoes has room behind the panel's last line.
    assert {len(line) for line in last[end:] if line[:1] in "╭│╰"} == {columns - 2}


def test_a_terminal_that_cannot_redraw_gets_lines(monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")  # as on a terminal
    monkeypatch.setenv("TERM", "xterm-256color")
    assert isinstance(make_display(), Panelled)
    monkeypatch.setenv("TERM", "dumb")
    assert isinstance(make_display(), Plain)


def test_without_the_lab_a_run_shows_lines(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr("rlzoo.cli.run.command.installed", lambda group: [])
    shown = make_display()
    assert type(shown) is Lines
    shown.start(Plan, RunFolder(tmp_path))
    shown.step(LINE, 1.0)
    shown.finish({}, RunFolder(tmp_path))
    out = capsys.readouterr().out
    assert "step    3 100%" in out
    assert out.count(str(tmp_path)) == 2


def test_no_color_is_no_color(monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    shown, file = panel(80)
    shown.console.print(curve_text([0.0, 1.0], 60))
    assert not re.search(r"\x1b\[[\d;]*3\d", file.getvalue())  # dim and bold are no colours


def test_a_run_whose_reader_has_gone_goes_on(monkeypatch, capsys, tmp_path):
    class Gone(io.StringIO):
        def write(self, text):
            raise BrokenPipeError

    kept = os.dup(1)
    try:
        shown = Plain(SafeConsole(file=Gone()))
        shown.start(Plan, RunFolder(tmp_path))
        shown.step(LINE, 1.0)
        shown.note("x")
    finally:
        os.dup2(kept, 1)
        os.close(kept)
    assert capsys.readouterr().err.count("the run continues") == 1


def finished(path, **more):
    """A made-up run with the summary that a real one has."""
    made_up_run(path, after=0.5, **more)
    file = path / "summary.json"
    summary = json.loads(file.read_text())
    summary |= {"recipe": "ppo_gae", "model": "nano", "estimator": "gae", "seed": more["seed"],
                "eval_samples": 1024, "eval_after_interval": [0.4, 0.6]}  # fmt: skip
    file.write_text(json.dumps(summary))
    return path


@pytest.mark.parametrize("columns", [60, 80, 140])
def test_the_closing_table_shows_the_run_before_and_after(columns, tmp_path):
    mine = finished(tmp_path / "mine", seed=1, estimator__lam=0.9)
    folder = RunFolder(mine)
    file = io.StringIO()
    console = SafeConsole(file=file, width=columns)
    for part in rendered(closing(folder.summary(), folder), console):
        console.print(part)
    out = file.getvalue()
    assert max(map(len, out.splitlines())) <= columns
    summary = folder.summary()
    [row] = [line.split() for line in out.splitlines() if line.split()[:2] == ["mine", "1"]]
    assert row[2:4] == [f"{summary['eval_before']:.3f}", f"{summary['eval_after']:.3f}"]
    flat = "".join(out.split())
    assert all(f"rlzoo{verb}{mine}" in flat for verb in ("report", "trace", "doctor"))


FLAT_LINE = {"score/std": 0.0, "group/no_signal": 1.0, "reward/mean": 0.0}


@pytest.mark.parametrize(
    ("critic", "line", "accuracy", "said"),
    [
        (True, {}, 0.0, "had the same score (0)"),
        (True, {"reward/mean": 1.0}, 1.0, "little left to learn"),
        (True, {"reward/mean": 0.3}, 0.3, "had the same score (0.3)"),
        (False, {"score/std": 0.4, "reward/mean": 0.5}, 0.5, "all samples of a prompt were alike"),
        (True, {"score/std": 0.4, "reward/mean": 0.5}, 0.5, None),  # a critic compares otherwise
        (False, {"score/std": 0.4, "group/no_signal": 0.9}, 0.5, None),
    ],
)
def test_it_says_once_that_nothing_can_be_learned(critic, line, accuracy, said):
    flat, told = Flat(critic), []
    for _ in range(3 * FLAT):
        told.append(flat.hear(FLAT_LINE | line, [{"eval/accuracy": accuracy}]))
    assert sum(text is not None for text in told) == (said is not None)
    if said:
        assert said in told[FLAT - 1]


def test_a_step_with_something_to_learn_begins_the_count_anew():
    flat = Flat(True)
    for n in range(3 * FLAT):
        line = FLAT_LINE | ({"score/std": 0.3} if n % (FLAT - 1) == 0 else {})
        assert flat.hear(line, []) is None


class Told(Silent):
    def __init__(self):
        self.phases, self.facts, self.notes = [], "", []

    def phase(self, name):
        self.phases.append(name)

    def ready(self, facts):
        self.facts = facts

    def note(self, text):
        self.notes.append(text)


def test_a_run_tells_its_phases_and_threads_and_that_nothing_is_right(
    words, zoo, tmp_path, monkeypatch
):
    """A reward that is never given: a random model that must spell."""
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    told, before = Told(), torch.get_num_threads()
    done = rlzoo.run(
        "ppo_gae",
        [*words, "task=reverse", "train.steps=11", "checkpoint.every=0", f"run.dir={tmp_path}/a"],
        zoo=zoo,
        display=told,
    )
    assert told.phases[:4] == [
        "loading the model", "evaluating 8 held-out prompts", "sampling", "updating"
    ]  # fmt: skip
    assert told.facts.endswith("parameters, 1 CPU thread")
    assert done.summary["threads"] == 1
    assert torch.get_num_threads() == before
    (text,) = [text for text in told.notes if "nothing can be learned" in text]
    assert text.startswith("step 10: for 10 steps all samples of a step had the same score (0)")
    assert "rlzoo doctor" in text


@pytest.mark.parametrize(
    ("parameters", "wanted", "by_hand", "chosen"),
    [
        (device.FEW - 1, None, False, 1),
        (device.FEW, None, False, 3),
        (device.FEW - 1, None, True, 3),
        (device.FEW, 2, False, 2),
    ],
)
def test_threads_go_by_size_unless_somebody_has_chosen(
    parameters, wanted, by_hand, chosen, monkeypatch
):
    monkeypatch.setattr(device, "_ALL", 3)
    model = torch.nn.Linear(2, 2)
    model.num_parameters = lambda: parameters
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    if by_hand:
        monkeypatch.setenv("OMP_NUM_THREADS", "3")
    before = torch.get_num_threads()
    try:
        device.choose_threads(wanted, model)
        assert torch.get_num_threads() == chosen
    finally:
        torch.set_num_threads(before)


def test_the_command_that_an_interrupted_run_prints_goes_on(words, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    step = Plain.step

    def interrupted(self, line, progress):
        step(self, line, progress)
        if line["step"] == 2:
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(Plain, "step", interrupted)
    assert main(["run", "ppo_gae", *words, "train.steps=3", "run.dir=a run"]) == 130
    said = capsys.readouterr().err
    (command,) = re.findall(r"rlzoo: stopped after step 2; `(.*)` continues the run", said)
    monkeypatch.setattr(Plain, "step", step)
    assert main(shlex.split(command)[1:]) == 0
    assert "resumed at step 2" in capsys.readouterr().out


def test_a_quiet_run_prints_its_folder_alone(words, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["run", "ppo_gae", *words, "train.steps=1", "run.dir=a", "--quiet"]) == 0
    out = capsys.readouterr().out
    assert len(out.splitlines()) == 1
    assert out.split()[-1] == "a"
    assert (tmp_path / "a" / "summary.json").exists()


@pytest.mark.parametrize(("terminal", "quiet"), [(True, False), (True, True), (False, False)])
def test_a_terminal_shows_what_is_computed_and_nothing_else_does(terminal, quiet, monkeypatch):
    stream = io.StringIO()
    stream.isatty = lambda: terminal
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setattr(sys, "stderr", stream)
    with doing("loading", quiet) as next_is:
        next_is("sampling")
    shown = terminal and not quiet
    assert [word in stream.getvalue() for word in ("loading", "sampling")] == [shown, shown]
