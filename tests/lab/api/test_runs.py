"""A run as an object: what it reads, how it shows itself, whatever its files hold."""

import asyncio
import json
import os
import re
from pathlib import Path

import pytest

import rlzoo
from helpers.made_up_runs import made_up_run, made_up_sweep
from rlzoo.errors import RunError, UsageError
from rlzoo_lab.api import notebook
from rlzoo_lab.view.display.run import curve
from rlzoo_lab.view.html import notebook as html

BAD = "<script>alert(1)</script>\x1b[31m\u202e'\"&"


@pytest.fixture(scope="module")
def trained(model_dir, zoo, tmp_path_factory):
    place = tmp_path_factory.mktemp("run") / "lam=0,5[1]"
    small = [
        *(f"model.path={model_dir}", "rollout.prompts=4", "rollout.samples=4", "device=cpu"),
        *("rollout.max_new_tokens=5", "train.steps=3", "train.minibatches=2", "eval.samples=8"),
    ]
    return rlzoo.run("ppo_gae", [*small, f'run.dir="{place}"'], zoo=zoo)


def test_steps_and_evaluations_are_apart_and_metrics_is_both(trained):
    assert [line["step"] for line in trained.steps] == [1, 2, 3]
    assert [line["step"] for line in trained.evaluations] == [0, 3]
    assert len(trained.metrics) == 5
    assert trained.metrics[0] == trained.evaluations[0]
    assert all("reward/mean" in line for line in trained.steps)
    assert {"prompt", "response", "score"} < set(trained.samples[0])
    assert trained.recipe["estimator"]["name"] == "gae"
    assert trained.state == "finished"


def test_a_loaded_run_is_the_run(trained):
    again = rlzoo.load_run(trained.path)
    assert again == trained
    assert again.metrics == trained.metrics
    assert repr(again) == repr(trained)
    assert "finished, 3 steps" in repr(again)
    assert len(repr(again)) < 300
    html = again._repr_html_()
    assert "<svg" in html
    assert "polyline" in html
    assert html.count("<tr") >= 1 + 2 + 6
    assert len(html) < 20_000


def test_its_verbs_are_those_of_the_module(trained, tmp_path):
    assert trained.trace(3)["row"] == 3
    assert trained.evaluate(prompts=4)["prompts"] == 4
    assert trained.doctor()["steps"] == 3
    assert Path(trained.report(tmp_path / "page.html")["report"]).is_file()
    exported = trained.export(tmp_path / "out")
    assert (tmp_path / "out" / "config.json").is_file()
    assert "config.json" in exported["files"]


def test_tables_and_figures(trained):
    frame = trained.frame()
    assert list(frame.index) == [1, 2, 3]
    assert frame["reward/mean"].tolist() == [line["reward/mean"] for line in trained.steps]
    assert len(trained.frame("evaluations")) == 2
    assert len(trained.frame("samples")) == len(trained.samples)
    with pytest.raises(UsageError, match="Got 'metrics'"):
        trained.frame("metrics")
    figure = trained.plot("actor/entropy", "reward/mean")
    assert [axes.get_ylabel() for axes in figure.axes] == ["actor/entropy", "reward/mean"]
    assert figure._repr_png_().startswith(b"\x89PNG")
    lines = [line.get_label() for line in trained.plot().axes[0].lines]
    assert lines[0] == "reward/mean"
    assert "held-out accuracy, 95 % interval" in lines
    with pytest.raises(UsageError, match="did you mean 'actor/entropy'"):
        trained.plot("actor/entrpy")


def test_a_relative_path_outlives_a_change_of_folder(trained, monkeypatch, tmp_path):
    monkeypatch.chdir(trained.path.parent)
    run = rlzoo.load_run(trained.path.name)
    assert os.fspath(run) == trained.path.name
    monkeypatch.chdir(tmp_path)
    assert run.path.name == trained.path.name
    assert run.steps == trained.steps
    assert os.path.isabs(os.fspath(run))
    assert run.doctor()["steps"] == 3


def test_whatever_its_files_hold_is_escaped(tmp_path):
    path = made_up_run(tmp_path / "a&b<i>", seed=0, after=0.5, recipe=BAD)
    samples = [{"step": 1, "prompt": BAD, "response": "x" * 100_000 + BAD, "answer": [BAD],
                "score": BAD, "truncated": BAD}, {"step": BAD}]  # fmt: skip
    (path / "samples.jsonl").write_text("".join(json.dumps(s) + "\n" for s in samples))
    with open(path / "metrics.jsonl", "a") as file:
        for name in ("reward/mean", "eval/accuracy", "eval/accuracy_low", "step"):
            file.write(json.dumps({"step": 7, "eval/score": BAD, name: BAD}) + "\n")
        file.write('{"step": 8, "reward/mean": NaN}\n{"step": 9, "reward/mean": 1e999}\nnot json\n')
    for seconds in (BAD, 10**400, [1]):
        (path / "summary.json").write_text(json.dumps({"seconds": seconds}))
        with pytest.raises(RunError):
            rlzoo.load_run(path)
    (path / "summary.json").write_text(json.dumps({"task": BAD, "model": BAD, "estimator": [BAD]}))
    run = rlzoo.load_run(path)
    html = run._repr_html_()
    assert "<script" not in html
    assert "<i>" not in html
    assert "\x1b" not in html
    assert "\u202e" not in html
    assert len(html) < 20_000
    assert "nan" not in re.sub(r"<title>.*?</title>", "", html)
    figure = run.plot()
    assert figure._repr_png_()


def test_a_run_that_failed_or_was_interrupted_opens(tmp_path):
    path = made_up_run(tmp_path / "a", seed=0, after=0.5, finished=False)
    run = rlzoo.load_run(path)
    assert run.state == "unfinished"
    assert run.summary == {}
    assert "rlzoo.resume(" in run._repr_html_()
    (path / "failed.json").write_text(json.dumps({"reason": BAD}))
    assert rlzoo.load_run(path).state == f"failed: {BAD}"
    assert "<script" not in run._repr_html_()
    (path / "metrics.jsonl").write_text("")
    assert "0 steps" in repr(rlzoo.load_run(path))
    assert rlzoo.load_run(path)._repr_html_()
    (path / "summary.json").write_text("{")
    with pytest.raises(RunError, match="cannot be read"):
        rlzoo.load_run(path)


def test_a_sweep_is_no_run_and_names_those_that_it_has(tmp_path):
    made_up_sweep(tmp_path / "sweep", {"a": (0.5, {"estimator.lam": 1.0})}, 1)
    with pytest.raises(RunError, match=r"is a sweep: .* one of \['a--seed0'\]"):
        rlzoo.load_run(tmp_path / "sweep")


def test_a_curve_in_a_notebook_is_short():
    line = [(float(i), i / 1e4) for i in range(10_000)]
    assert len(html([curve(line)])) < 6_000
    assert "<svg" not in html([curve([])])


class Screen:
    """What IPython's display gives back."""

    def __init__(self):
        self.pages = []

    def __call__(self, page, **_):
        self.pages.append(page)
        return self

    update = __call__


@pytest.fixture
def screen(monkeypatch):
    import IPython.display

    shown = Screen()
    monkeypatch.setattr(IPython.display, "display", shown)
    return shown


def test_the_display_draws_rarely_and_little(screen, monkeypatch):
    """An hour of steps of 100 ms each: seldom drawn, and never for more than 1 % of the time."""
    clock = [0.0]
    monkeypatch.setattr(notebook.time, "monotonic", lambda: clock[0])
    shown = notebook.Notebook()
    draw, busy = shown.draw, []

    def costly():
        draw()
        clock[0] += 0.004
        busy.append(0.004)

    shown.draw = costly
    for step in range(1, 36_001):
        clock[0] += 0.1
        shown.step({"step": step, "reward/mean": step / 36_000}, step / 36_000)
    assert 100 < len(busy) < 1500
    assert sum(busy) < 0.01 * clock[0]
    assert (shown.steps[-1], shown.rewards[-1]) == (36_000, 1)
    assert max(len(page["text/html"]) for page in screen.pages) < 8_000


def test_the_display_says_what_a_long_step_is_at(screen, monkeypatch, capfd):
    clock = [0.0]
    monkeypatch.setattr(notebook.time, "monotonic", lambda: clock[0])
    shown = notebook.Notebook()
    shown.ready("60 k parameters <b>")
    for name in ("sampling", "updating"):
        clock[0] += 30
        shown.phase(name)
        assert screen.pages[-1]["text/plain"].endswith(name)
        shown.phase("in between")
        assert screen.pages[-1]["text/plain"].endswith(name), "not drawn twice at once"
    assert "60 k parameters &lt;b&gt;" in screen.pages[-1]["text/html"]
    shown.step({"step": 1, "reward/mean": 1.0}, 0.5)
    shown.stopping()
    assert "stopping after this step" in capfd.readouterr().err
    assert shown.now() == "step 1; stopping after this step"


def test_the_display_of_a_run_that_is_stopped_says_how_it_goes_on(
    screen, monkeypatch, words, zoo, tmp_path
):
    monkeypatch.setattr("rlzoo_lab.api.runs.in_notebook", lambda: True)
    step = notebook.Notebook.step

    def stopped(self, line, progress):
        step(self, line, progress)
        if line["step"] == 2:
            os.kill(os.getpid(), 2)

    monkeypatch.setattr(notebook.Notebook, "step", stopped)
    with pytest.raises(KeyboardInterrupt) as caught:
        rlzoo.run("grpo", [*words, f"run.dir={tmp_path}/a"], zoo=zoo)
    (line,) = caught.value._render_traceback_()
    assert line == f"stopped after step 2; rlzoo.resume('{tmp_path}/a') continues the run"
    assert "rlzoo.resume(" in screen.pages[-1]["text/html"]
    run = rlzoo.resume(tmp_path / "a", zoo=zoo, display=False)
    assert run.summary["steps"] == 3
    assert len(screen.pages[0]["text/html"]) < 3_000
    assert "finished" not in screen.pages[-1]["text/html"]


def test_a_run_in_a_thread_of_a_busy_loop_is_shown(screen, monkeypatch, words, zoo, tmp_path):
    """As an async cell does it; and two runs at once each have their own output."""
    monkeypatch.setattr("rlzoo_lab.api.runs.in_notebook", lambda: True)

    async def both():
        one = [*words, "train.steps=1"]
        return await asyncio.gather(
            *(asyncio.to_thread(rlzoo.run, "grpo", [*one, f"run.dir={tmp_path}/{n}"], zoo=zoo)
              for n in "ab")
        )  # fmt: skip

    runs = asyncio.run(both())
    assert [run.summary["steps"] for run in runs] == [1, 1]
    ends = [page["text/html"] for page in screen.pages if "finished in" in page["text/html"]]
    assert len(ends) == 2
    assert {n for n in "ab" for page in ends if f"{tmp_path}/{n}" in page} == {"a", "b"}


def test_a_display_is_picked_by_the_word_and_the_place(monkeypatch, screen, words, zoo, tmp_path):
    rlzoo.run("grpo", [*words, "train.steps=1", f"run.dir={tmp_path}/a"], zoo=zoo)
    assert screen.pages == []
    monkeypatch.setattr("rlzoo_lab.api.runs.in_notebook", lambda: True)
    rlzoo.run("grpo", [*words, "train.steps=1", f"run.dir={tmp_path}/b"], zoo=zoo, display=False)
    assert screen.pages == []
    rlzoo.run("grpo", [*words, "train.steps=1", f"run.dir={tmp_path}/c"], zoo=zoo)
    assert "finished" in screen.pages[-1]["text/html"]
    with pytest.raises(RunError):
        rlzoo.run("grpo", [*words, f"run.dir={tmp_path}/c"], zoo=zoo)


def test_in_plain_python_true_shows_lines(words, zoo, tmp_path, capsys):
    rlzoo.run("grpo", [*words, "train.steps=1", f"run.dir={tmp_path}/a"], zoo=zoo, display=True)
    assert "held-out" in capsys.readouterr().out
