"""Loggers hear every line once, under its own name and step, also when a run was cut off.

TensorBoard is run. trackio and wandb are stand-in modules here that keep what they are told.
"""

import json
import sys
from types import ModuleType, SimpleNamespace

import pytest

import rlzoo
from rlzoo.errors import RecipeError
from rlzoo.recipe.compose import compose
from rlzoo.recipe.plan import make_plan

LINES = [
    {"step": 0, "eval/accuracy": 0.25, "eval/score": 0.25},
    {"step": 1, "reward/mean": 0.5, "perf/tokens": 640},
    {"step": 2, "reward/mean": 0.75, "perf/tokens": 1280},
    {"step": 2, "eval/accuracy": 0.5, "eval/score": 0.5},
    {"step": 3, "reward/mean": 1.0, "perf/tokens": 1920},
]


class Cut:
    def __init__(self, at):
        self.at = at

    def step(self, line, progress):
        if line["step"] == self.at:
            raise KeyboardInterrupt

    def __getattr__(self, name):
        return lambda *_: None


def by_name(lines):
    """{metric: [(step, value), ...]}, of what metrics.jsonl holds."""
    out = {}
    for line in lines:
        for name, value in line.items():
            if name != "step":
                out.setdefault(name, []).append((line["step"], value))
    return out


def test_tensorboard_has_every_line_once_after_a_resume(zoo, words, tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    words = [*words, "train.steps=4", "eval.every=2", "checkpoint.every=2", "loggers=tensorboard",
             f"run.dir={tmp_path}/run"]  # fmt: skip
    with pytest.raises(KeyboardInterrupt):
        rlzoo.run("ppo_gae", words, zoo=zoo, display=Cut(3))
    run = rlzoo.resume(tmp_path / "run", zoo=zoo)
    events = EventAccumulator(str(run.path / "tensorboard"), size_guidance={"scalars": 0})
    events.Reload()
    wanted = by_name(run.metrics)
    assert set(events.Tags()["scalars"]) == set(wanted)
    assert [step for step, _ in wanted["eval/score"]] == [0, 2, 4]
    for name, points in wanted.items():
        found = [(e.step, e.value) for e in events.Scalars(name)]
        assert found == [(step, pytest.approx(value, rel=1e-6)) for step, value in points], name


class Store:
    """What a service keeps: runs by id, each with the rows that it was told."""

    def __init__(self):
        self.runs = {}
        self.settings = {}
        self.finished = []

    def open(self, key, name, **settings):
        self.runs.setdefault(key, [])
        self.settings[key] = {"name": name, **settings}
        return SimpleNamespace(
            id=key,
            log=lambda metrics, step: self.runs[key].append({"step": step, **metrics}),
            finish=lambda: self.finished.append(key),
        )


@pytest.fixture
def trackio(monkeypatch):
    store, module, count = Store(), ModuleType("trackio"), iter(range(99))

    class Api:
        def runs(self, project):
            if not store.runs:
                raise ValueError(f"Project '{project}' does not exist")
            return [
                SimpleNamespace(id=key, delete=lambda key=key: store.runs.pop(key))
                for key in store.runs
            ]

    module.init = lambda project, name, **more: store.open(
        f"id{next(count)}", name, project=project, **more
    )
    module.Api = Api
    monkeypatch.setitem(sys.modules, "trackio", module)
    return store


@pytest.fixture
def wandb(monkeypatch):
    store, module = Store(), ModuleType("wandb")

    def init(**more):
        key = more.pop("id")
        if more["mode"] == "offline":  # its file is new; online the run is the same one
            store.runs.pop(key, None)
        run = store.open(key, **more)
        plain = run.log

        def log(metrics, step):  # wandb's rule: a step that is over takes nothing more
            rows = store.runs[key]
            if not rows or step > rows[-1]["step"]:
                plain(metrics, step)
            elif step == rows[-1]["step"]:
                rows[-1].update(metrics)

        return SimpleNamespace(id=key, log=log, finish=run.finish)

    module.init = init
    module.Settings = lambda **more: more
    monkeypatch.setitem(sys.modules, "wandb", module)
    monkeypatch.delenv("WANDB_MODE", raising=False)
    return store


def tell(zoo, name, folder, lines, **options):
    logger = zoo.loggers[name]({"path": folder}, **options)
    for line in lines:
        before = dict(line)
        logger.log(line)
        assert line == before
    return logger


def test_trackio_is_told_every_line_once(zoo, trackio, tmp_path):
    tell(zoo, "trackio", tmp_path, LINES[:3], project="mine")  # cut off: never closed
    assert list(trackio.runs.values()) == [LINES[:3]]
    tell(zoo, "trackio", tmp_path, LINES, project="mine").close()
    (rows,) = trackio.runs.values()
    assert rows == LINES
    (key,) = trackio.runs
    assert trackio.finished == [key]
    assert trackio.settings[key]["project"] == "mine"
    assert trackio.settings[key]["name"] == tmp_path.name
    other = tmp_path / "other"
    other.mkdir()
    tell(zoo, "trackio", other, LINES[:1], project="mine")
    assert trackio.runs[key] == LINES
    tell(zoo, "trackio", tmp_path, LINES[:2], project="mine")
    assert list(trackio.runs.values()) == [LINES[:1], LINES[:2]]  # another run's is left alone
    trackio.runs.clear()  # the project is gone
    tell(zoo, "trackio", tmp_path, LINES, project="mine")
    assert list(trackio.runs.values()) == [LINES]


@pytest.mark.parametrize("mode", [None, "online"])
def test_wandb_is_told_every_line_once(zoo, wandb, tmp_path, monkeypatch, mode):
    if mode:
        monkeypatch.setenv("WANDB_MODE", mode)
    tell(zoo, "wandb", tmp_path, LINES[:3])  # cut off: never closed
    (tmp_path / "wandb" / "offline-run-1").mkdir(parents=True)  # what the cut-off run left
    tell(zoo, "wandb", tmp_path, LINES).close()
    (key,) = wandb.runs
    rows = {row["step"]: row for row in wandb.runs[key]}
    assert len(rows) == len(wandb.runs[key])
    assert rows == {0: LINES[0], 1: LINES[1], 2: {**LINES[2], **LINES[3]}, 3: LINES[4]}
    settings = wandb.settings[key]
    assert settings["mode"] == (mode or "offline")
    assert settings["dir"] == str(tmp_path)
    assert (settings["resume"] == "allow") == (mode == "online")
    assert (tmp_path / "wandb").exists() == (mode == "online")
    assert wandb.finished == [key]


@pytest.mark.parametrize("name", ["tensorboard", "trackio", "wandb"])
def test_a_package_that_is_missing_is_said_in_one_line(zoo, words, monkeypatch, name, golden):
    monkeypatch.setattr("rlzoo_zoo.packages.find_spec", lambda package: None)
    recipe = compose(["recipe=grpo", *words, f"loggers={name}"], zoo)
    with golden.refuses(RecipeError):
        make_plan(recipe, zoo)


def test_every_line_of_a_run_reaches_a_logger(zoo, words, trackio, tmp_path, monkeypatch):
    monkeypatch.setattr("rlzoo_zoo.packages.find_spec", lambda package: object())
    run = rlzoo.run("grpo", [*words, "loggers=trackio", f"run.dir={tmp_path}/run"], zoo=zoo)
    (rows,) = trackio.runs.values()
    assert json.loads(json.dumps(rows)) == run.metrics
    assert trackio.finished
