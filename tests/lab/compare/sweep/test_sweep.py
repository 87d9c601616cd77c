"""Sweeps: rows from words, and a folder that survives whoever is killed."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from helpers.forks import Context
from rlzoo.cli import main, parser_of
from rlzoo.cli.verb import perform
from rlzoo.errors import RlzooError, RunError, disk_is_full
from rlzoo.runs.lock import locked
from rlzoo_lab.compare.command import document
from rlzoo_lab.compare.comparison import compare
from rlzoo_lab.compare.sweep import command
from rlzoo_lab.compare.sweep.folder import check_folder
from rlzoo_lab.compare.sweep.plan import plan_sweep
from rlzoo_zoo.executors import local

TROUBLE = '''
"""Loggers that kill their process, or find the disk full, once; an estimator that fails."""
import errno, os, signal
from pathlib import Path
from rlzoo import hookimpl

HERE = Path(__file__).parent

def once(name):
    if (HERE / name).exists():
        return False
    (HERE / name).touch()
    return True

class Reaper:
    """Source: a test."""
    def __init__(self, path): ...
    def log(self, metrics):
        if metrics["step"] == 2 and once("killed"):
            os.kill(os.getpid(), signal.SIGKILL)
    def close(self): ...

class SmallDisk:
    """Source: a test."""
    def __init__(self, path): ...
    def log(self, metrics):
        if metrics["step"] == 2 and once("full"):
            raise OSError(errno.ENOSPC, "No space left on device")
    def close(self): ...

def faulty(rewards, response_mask):
    """Source: a test."""
    if not (HERE / "mended").exists():
        raise RuntimeError("no luck today")
    return rewards

@hookimpl
def register_loggers(register):
    register(Reaper)
    register(SmallDisk)

@hookimpl
def register_estimators(register):
    register(faulty)
'''


def sweep(*words, **options):
    """As `rlzoo sweep`, in this process: its workers are processes of their own all the same."""
    parser = parser_of("sweep")
    flags = [x for k, v in options.items() for x in (f"--{k}", str(v))]
    return perform(command, parser.parse_args([*words, *flags]))


def scores(folder):
    """What must not depend on who was killed: the whole table but for times."""
    out = document(compare([folder]))
    for row in out["rows"]:
        del row["seconds"], row["runs"]
    told = [line for line in out["verdict"] if not line.startswith("No run of ")]  # a failed row
    return out["rows"], out["pairs"], told


def labels(zoo, *words):
    return [row.label for row in plan_sweep(list(words), zoo).rows]


# ---------------------------------------------------------------- words -> rows


def test_a_value_given_twice_is_one_row(zoo):
    assert len(labels(zoo, "recipe=grpo", "actor.lr=0.1,0.1,0.2", "seed=0")) == 2


def test_an_option_goes_to_the_components_that_have_it(zoo):
    words = ["recipe=ppo_gae", "estimator=gae,mc,grpo", "estimator.lam=0,1"]
    assert labels(zoo, *words) == ["gae lam=0", "gae lam=1", "mc", "grpo"]
    # one value that only some can take, and recipes that choose the component
    assert labels(zoo, "recipe=ppo_gae", "estimator=gae,mc", "estimator.lam=0.5") == ["gae", "mc"]
    assert labels(zoo, "recipe=ppo_gae,rloo", "estimator.lam=0,1") == [
        "ppo_gae lam=0", "ppo_gae lam=1", "rloo"
    ]  # fmt: skip
    assert labels(zoo, "recipe=ppo_gae", "rewards=verifier,overlong", "rewards.overlong.weight=1,2",
                  "whiten=none,batch")[:3] == [
        "verifier whiten=none", "verifier whiten=batch", "overlong weight=1 whiten=none"
    ]  # fmt: skip


def test_rows_that_say_the_same_are_one(zoo):
    assert labels(zoo, "recipe=ppo_gae", "estimator.lam=1,1.0,0") == ["lam=1", "lam=0"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["estimator.lamm=0,1"], "no option|has an option 'lamm'.*did you mean 'lam'"),
        (["estimator=mc,td0", "estimator.lam=0.5"], "no chosen estimator has an option"),
        (["estimator=gae,mc", "estimator.lam=0,2"], "row estimator=gae estimator.lam=2: .* Got 2"),
        (["estimator=gae,mcc"], "row estimator=mcc: .*did you mean 'mc'"),
        (["estimator=grpo", "rollout.samples=1,4"], "row rollout.samples=1: .*at least 2"),
        (["model.path=/nowhere,/there"], "row model.path=/nowhere: .*is not a model"),
        (["seed=0,x"], "seed .*Got 'x'"),
        (["seed=3..1"], "seed .*Got '3..1'"),
        (["seed=0", "seed=1"], "seed is given twice"),
        (["run.dir=here"], "--dir"),
        (["actor.lr"], "expected key=value"),
    ],
)
def test_every_row_is_validated_before_the_first_run(zoo, words, said):
    with pytest.raises(RlzooError, match=said) as caught:
        plan_sweep(["recipe=ppo_gae", *words], zoo)
    assert "\n" not in str(caught.value)


def test_jobs_are_paired_by_seed_and_differ_in_nothing_else(zoo):
    found = plan_sweep(["recipe=ppo_gae", "estimator.lam=0,1", "seed=0..2,7"], zoo)
    assert [j.name for j in found.jobs][:3] == ["lam=0--seed0", "lam=1--seed0", "lam=0--seed1"]
    assert found.seeds == (0, 1, 2, 7)
    first = found.jobs[0].recipe.config
    assert (first.seed, first.run.threads, first.run.dir) == (0, 1, str(found.jobs[0].path))


def test_the_folder_follows_from_the_words(zoo):
    words = ["recipe=ppo_gae", "estimator.lam=0,1", "seed=0,1"]
    path = plan_sweep(words, zoo).path
    assert path == plan_sweep(words[::-1], zoo).path
    assert path != plan_sweep([*words, "train.steps=2"], zoo).path
    assert path.parts[0] == "runs"
    assert plan_sweep(words, zoo, "elsewhere").path == Path("elsewhere")


def test_disk_is_full_as_python_and_safetensors_say_it():
    assert disk_is_full(OSError(28, "No space left on device"))
    assert disk_is_full(RuntimeError('I/O error: Os { message: "No space left on device" }'))
    assert not disk_is_full(OSError(2, "no such file"))


def test_default_jobs_fit_cores_and_memory(zoo, monkeypatch):
    found = plan_sweep(["recipe=ppo_gae", "model=nano", "device=cpu", "estimator.lam=0,1"], zoo)
    executor = local.Local()
    monkeypatch.setattr(local, "_cores", lambda: 8)
    monkeypatch.setattr(local, "_free_memory", lambda: 64e9)
    assert executor.capacity(found.jobs) == 8
    monkeypatch.setattr(local, "_free_memory", lambda: 1.5e9)
    assert executor.capacity(found.jobs) == 2
    monkeypatch.setattr(local, "_free_memory", lambda: 0.0)
    assert executor.capacity(found.jobs) == 1


# ---------------------------------------------------------------- the folder


@pytest.fixture(scope="module", autouse=True)
def workers_that_start_at_once():
    """Workers are processes of their own, forked where torch is imported already."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(local.multiprocessing, "get_context", lambda method: Context)
        yield


@pytest.fixture(scope="module")
def undisturbed(model_dir, tmp_path_factory):
    """The words of a small sweep, and its folder, run in one go."""
    words = [
        "recipe=ppo_gae", "estimator=gae,mc", "seed=0,1", f"model.path={model_dir}", "device=cpu",
        "rollout.prompts=4", "rollout.samples=4", "rollout.max_new_tokens=5", "train.steps=3",
        "train.minibatches=2", "eval.samples=64", "checkpoint.every=1",
    ]  # fmt: skip
    folder = tmp_path_factory.mktemp("sweep") / "whole"
    assert sweep(*words, dir=folder, jobs=1) == 0
    return words, folder


@pytest.mark.process
def test_a_sweep_is_a_folder_of_runs_with_a_table_and_a_report(undisturbed, capsys):
    words, folder = undisturbed
    runs = sorted(p.parent.name for p in folder.glob("*/summary.json"))
    assert runs == ["gae--seed0", "gae--seed1", "mc--seed0", "mc--seed1"]
    index = json.loads((folder / "sweep.json").read_text())
    assert index["keys"] == ["estimator.name"]
    assert [row["label"] for row in index["rows"]] == ["gae", "mc"]
    assert "<svg" in (folder / "report.html").read_text()
    before = (folder / "gae--seed0" / "metrics.jsonl").stat().st_mtime_ns
    assert sweep(*words, dir=folder) == 0  # nothing is missing: the table again, and no run
    out = capsys.readouterr().out
    assert "minus reference" in out
    assert "at a time" not in out
    assert (folder / "gae--seed0" / "metrics.jsonl").stat().st_mtime_ns == before


@pytest.mark.process
def test_rows_share_prompts_noise_and_start(undisturbed):
    _, folder = undisturbed
    first = [json.loads((folder / name / "metrics.jsonl").read_text().splitlines()[1])
             for name in ("gae--seed0", "mc--seed0", "gae--seed1")]  # fmt: skip
    assert first[0]["reward/mean"] == first[1]["reward/mean"]
    assert first[0]["response_length/mean"] == first[1]["response_length/mean"]
    assert first[0]["response_length/mean"] != first[2]["response_length/mean"]


@pytest.mark.process
def test_a_folder_of_another_recipe_is_refused(undisturbed, zoo, tmp_path):
    words, folder = undisturbed
    longer = [w.replace("steps=3", "steps=4") for w in words]
    with pytest.raises(RunError, match="train.steps is 3 there but 4 now"):
        check_folder(plan_sweep(longer, zoo, str(folder)))
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    for file in copy.glob("*/metrics.jsonl"):
        file.write_text("")  # each was refused before it began
    check_folder(plan_sweep(longer, zoo, str(copy)))
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(RunError, match="is not a sweep"):
        check_folder(plan_sweep(words, zoo, str(tmp_path)))


def test_a_reference_that_is_no_row_is_found_before_the_first_run(tmp_path):
    with pytest.raises(RlzooError, match="'0.7' does not identify one row"):
        sweep("recipe=ppo_gae", "estimator.lam=0,1", dir=tmp_path / "s", reference="0.7")
    assert not (tmp_path / "s").exists()


@pytest.mark.process
def test_two_sweeps_in_one_folder_at_a_time_are_refused(undisturbed):
    words, folder = undisturbed
    with (
        locked(folder),
        pytest.raises(RunError, match="another process is using it"),
    ):
        sweep(*words, dir=folder)


@pytest.fixture
def trouble(tmp_path, monkeypatch):
    (tmp_path / "trouble.py").write_text(TROUBLE)
    monkeypatch.setenv("RLZOO_PLUGINS", str(tmp_path / "trouble.py"))
    return tmp_path


@pytest.mark.landing
@pytest.mark.process
def test_killed_worker_and_failing_row(undisturbed, trouble, capsys):
    """A worker is killed in the middle of a run, and a row fails; then that row is mended."""
    words, whole = undisturbed
    folder = trouble / "s"
    words = [w.replace("gae,mc", "gae,mc,faulty") for w in words] + ["loggers=reaper"]
    assert sweep(*words, dir=folder, jobs=1) == 1
    out = capsys.readouterr().out
    assert "gae--seed0: its worker died (SIGKILL" in out
    assert "resumed at step 1" in out
    assert scores(folder) == scores(whole)
    found = document(compare([folder]))
    assert set(found["failed"]) == {"faulty"}
    assert "no luck today" in found["failed"]["faulty"]["faulty--seed0"]
    assert "failed" in out.split("held-out", 1)[1]  # a row of the table
    assert "Traceback" in (folder / "workers.log").read_text()

    (trouble / "mended").touch()
    assert sweep(*words, dir=folder, jobs=1) == 0
    assert "2 runs, 1 at a time" in capsys.readouterr().out
    assert [row["row"] for row in document(compare([folder]))["rows"]] == ["gae", "mc", "faulty"]


@pytest.mark.landing
@pytest.mark.process
def test_full_disk_stops_with_one_line_and_goes_on_afterwards(undisturbed, trouble, capsys):
    words, whole = undisturbed
    words = [*words, "loggers=small_disk"]
    assert main(["sweep", *words, "--dir", str(trouble / "s"), "--jobs", "1"]) == 1
    *warned, err = capsys.readouterr().err.strip().splitlines()
    assert "no space left on device" in err
    assert "run the same command again to continue" in err
    assert all(line.startswith("rlzoo: warning: ") for line in warned)
    assert sweep(*words, dir=trouble / "s", jobs=1) == 0
    assert scores(trouble / "s") == scores(whole)


@pytest.mark.landing
@pytest.mark.process
def test_killed_parent_and_restart_give_the_same_table(undisturbed, tmp_path, capfd):
    words, whole = undisturbed
    folder = tmp_path / "s"
    command = [sys.executable, "-m", "rlzoo", "sweep", *words, "--dir", str(folder), "--jobs", "1"]
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    second = folder / "mc--seed0" / "checkpoints"
    deadline = time.monotonic() + 240
    while not list(second.glob("step-*")) and time.monotonic() < deadline:
        time.sleep(0.01)
    worker = next(pid for pid in map(int, filter(str.isdigit, os.listdir("/proc")))
                  if _parent(pid) == child.pid and b"spawn_main" in _cmdline(pid))  # fmt: skip
    child.kill()
    child.wait()
    assert child.returncode == -signal.SIGKILL
    while _cmdline(worker) and time.monotonic() < deadline:  # it dies with its parent
        time.sleep(0.01)
    assert not _cmdline(worker)
    assert len(list(folder.glob("*/summary.json"))) < 4
    (folder / "gae--seed1").mkdir(exist_ok=True)
    (folder / "gae--seed1" / "recipe.yaml").write_text("")  # as if killed while writing it
    assert sweep(*words, dir=folder, jobs=1) == 0
    assert scores(folder) == scores(whole)


def _parent(pid):
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def _cmdline(pid):
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""
