"""Where a sweep's runs happen: `--on NAME option=value ...`, and what an executor is told."""

import io
import json
from types import SimpleNamespace

import pytest
from rich.console import Console

import rlzoo
from rlzoo.cli import parse
from rlzoo.errors import RlzooError
from rlzoo_lab.compare.sweep import board, work
from rlzoo_lab.compare.sweep.command import read_executor, sort_words
from rlzoo_zoo.executors import slurm


def test_options_stand_behind_the_executor_and_words_of_the_recipe_anywhere(zoo):
    words = ["sweep", "recipe=grpo", "--on", "slurm", "minutes=60", "cluster=local", "seed=0,1"]
    arguments = parse(words)
    options, left = sort_words(arguments.on, arguments.words, zoo)
    executor = read_executor(arguments.on, options, zoo)
    assert executor.name == "slurm"
    assert (executor.options["minutes"], executor.options["cluster"]) == (60, "local")
    assert left == ["recipe=grpo", "seed=0,1"]


def test_local_is_what_a_sweep_runs_on(zoo):
    arguments = parse(["sweep", "recipe=grpo", "seed=0,1"])
    options, left = sort_words(arguments.on, arguments.words, zoo)
    executor = read_executor(arguments.on, options, zoo)
    assert (executor.name, dict(executor.options)) == ("local", {"patience": 30.0})
    assert left == ["recipe=grpo", "seed=0,1"]


@pytest.mark.parametrize(
    ("on", "text"),
    [
        (["locla"], "no executor 'locla'; did you mean 'local'"),
        (["local", "patience=-1"], "option 'patience' must be a float in"),
        (["local:here"], "no option 'address'"),
    ],
)
def test_a_bad_executor_is_one_line(zoo, on, text):
    with pytest.raises(RlzooError, match=text):
        read_executor(on, sort_words(on, [], zoo)[0], zoo)


def test_slurm_is_refused_where_there_is_none(zoo, monkeypatch):
    monkeypatch.setattr("rlzoo_zoo.packages.find_spec", lambda name: None)
    with pytest.raises(RlzooError, match=r"needs submitit: pip install 'rlzoo-llm\[slurm\]'"):
        read_executor(["slurm"], [], zoo)
    monkeypatch.setattr("rlzoo_zoo.packages.find_spec", lambda name: True)
    monkeypatch.setattr(slurm.shutil, "which", lambda name: None)
    with pytest.raises(RlzooError, match="no sbatch command"):
        read_executor(["slurm"], [], zoo)


def test_a_failure_is_written_into_the_run_s_folder(tmp_path):
    shown = Console(file=io.StringIO(), width=200)
    sweep = SimpleNamespace(path=tmp_path, jobs=[1, 2])
    job = SimpleNamespace(name="a--seed0", path=tmp_path / "a--seed0")
    told = board.Board(shown, sweep, 2, 1)
    told.begin(job)
    told.failed(job, "no luck")
    assert json.loads((job.path / "failed.json").read_text()) == {"reason": "no luck"}
    assert shown.file.getvalue() == "1/2 runs, 1 failed  a--seed0  failed: no luck\n"


def test_the_live_board_says_where_runs_are_also_of_one_that_waits(tmp_path):
    console = Console(width=80, force_terminal=True, color_system=None, file=io.StringIO())
    told = board.Board(console, SimpleNamespace(path=tmp_path, jobs=[1, 2, 3]), 3, 2)
    waits, here, there = (SimpleNamespace(name=f"grpo--seed{i}") for i in range(3))
    told.news(waits, "note", "waits for a node")
    told.news(here, "evaluation", "accuracy .5")
    for job in (here, there):
        told.begin(job)
        told.news(job, "step", 0.5, 7, 0.25)
    told.news(there, "place", "node-a")
    assert console.file.getvalue() == "grpo--seed0: waits for a node\n"
    count, *lines = str(told).splitlines()
    assert count.startswith("0/3 runs")
    assert all("step 7" in line for line in lines)
    (row,) = [line for line in lines if "node-a" in line]
    assert row.split()[0] == "grpo--seed2"


def test_a_run_that_raises_has_failed_and_a_full_disk_ends_all(tmp_path, monkeypatch):
    job = SimpleNamespace(path=tmp_path)

    def raises(error):
        def do(*_):
            raise error

        monkeypatch.setattr(work, "do", do)
        monkeypatch.setattr(work, "_zoo", lambda process: None)
        return work.work(job, lambda *news: None)

    assert raises(RlzooError("its options are odd")) == ("failed", "its options are odd")
    assert raises(ZeroDivisionError("by zero")) == ("failed", "ZeroDivisionError: by zero")
    with pytest.raises(OSError, match="no space left on device"):
        raises(RuntimeError("PytorchStreamWriter failed: No space left on device"))


class Board:
    def __init__(self):
        self.said = []

    def __getattr__(self, word):
        return lambda job=None, *rest: self.said.append((word, *rest)) if job else None


def test_slurm_shows_how_far_a_run_is(tmp_path):
    told, job = Board(), SimpleNamespace(path=tmp_path, steps=4)
    slurm._look(job, told)  # nothing is there yet
    lines = ['{"step": 1, "reward/mean": 0.25}', '{"step": 2, "reward/mean": 0.5}', '{"ste']
    (tmp_path / "metrics.jsonl").write_text("\n".join(lines))
    slurm._look(job, told)
    assert told.said == [("news", "step", 0.5, 2, 0.5)]


def test_a_slurm_job_that_is_lost_is_sent_again(tmp_path, monkeypatch):
    """submitit's jobs, pretended: the first two tries of a run are lost; another's never come."""
    sent = []

    class Handle:
        def __init__(self, job):
            sent.append(job.name)
            self.error = RuntimeError("node is gone") if lost(job.name) else None

        done = staticmethod(lambda: True)

        def exception(self):
            return self.error

        def result(self):
            return "done", {}

    def lost(name):
        return name == "never" or (name == "third" and sent.count("third") < 3)

    executor = SimpleNamespace(update_parameters=lambda **_: None,
                               submit=lambda call, job: Handle(job))  # fmt: skip
    monkeypatch.setattr("submitit.AutoExecutor", lambda **_: executor)
    monkeypatch.setattr(slurm, "EVERY", 0.0)
    told = Board()
    jobs = [SimpleNamespace(name=n, path=tmp_path, steps=1) for n in ("third", "never")]
    slurm.Slurm().run(jobs, None, told, tmp_path, 1)
    assert sent == ["third"] * 3 + ["never"] * 3
    assert ("failed", "its job was lost 3 times (node is gone)") in told.said
    assert [what for what in told.said if what[0] == "done"] == [("done", {})]


FAULTY = '''
import rlzoo

@rlzoo.component("executor")
class Faulty:
    """Source: a test."""
    def capacity(self, jobs):
        return 1
    def run(self, jobs, work, board, folder, at_a_time):
        {run}
'''


@pytest.mark.parametrize(
    ("old", "new", "text"),
    [
        ("def run(", "def ran(", "has no attribute 'run'"),
        ("{run}", "raise RuntimeError('the cluster\\nis down')", "the cluster is down"),
        ("return 1", "pass", "raised TypeError"),
        ("jobs, work, board, folder, at_a_time", "jobs", "takes 2 positional"),
        ("{run}", "pass", "did not begin"),
    ],
)
def test_a_faulty_executor_is_one_line(old, new, text, words, tmp_path, monkeypatch):
    (tmp_path / "faulty.py").write_text(FAULTY.replace(old, new).replace("{run}", "pass"))
    monkeypatch.setenv("RLZOO_PLUGINS", str(tmp_path / "faulty.py"))
    with pytest.raises(RlzooError) as caught:
        rlzoo.sweep("grpo", [*words, "seed=0"], on="faulty", dir=tmp_path / "sweep")
    assert text in str(caught.value)
    assert "\n" not in str(caught.value)
