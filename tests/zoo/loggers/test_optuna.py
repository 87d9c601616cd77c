"""A tuner sees each evaluation, and may end a run; with a stand-in for Optuna and its trial."""

import sys
from importlib.machinery import ModuleSpec
from types import ModuleType, SimpleNamespace

import pytest

import rlzoo
from helpers.runs import StopAt, lines
from rlzoo.errors import RlzooError
from rlzoo_zoo.loggers.optuna import for_trial


class Trial:
    """What the logger uses of Optuna's. prunes: the steps at which its pruner ends it."""

    number = 3

    def __init__(self, prunes=()):
        self.prunes, self.intermediate_values = prunes, {}
        mine = SimpleNamespace(intermediate_values=self.intermediate_values)
        self.study = SimpleNamespace(get_trials=lambda deepcopy: [None] * 3 + [mine])

    def report(self, value, step):
        assert step not in self.intermediate_values
        self.intermediate_values[step] = value

    def should_prune(self):
        return max(self.intermediate_values) in self.prunes


class Pruned(Exception):
    pass


@pytest.fixture(autouse=True)
def optuna(monkeypatch):
    module = ModuleType("optuna")
    module.__spec__, module.TrialPruned = ModuleSpec("optuna", None), Pruned
    monkeypatch.setitem(sys.modules, "optuna", module)


def train(zoo, words, place, **more):
    words = [*words, "loggers=optuna", "eval.every=1", f"run.dir={place}"]
    return rlzoo.run("ppo_gae", words, zoo=zoo, **more)


def evaluations(place):
    return {line["step"]: line["eval/score"] for line in lines(place) if "eval/score" in line}


@pytest.mark.landing
def test_a_trial_is_told_each_evaluation_and_once(zoo, words, tmp_path):
    trial = Trial()
    with for_trial(trial), pytest.raises(KeyboardInterrupt):
        train(zoo, words, tmp_path / "run", display=StopAt(3))
    assert set(trial.intermediate_values) == {0, 1, 2}
    with for_trial(trial):
        run = rlzoo.resume(tmp_path / "run", zoo=zoo)
    assert trial.intermediate_values == evaluations(run.path)
    assert run.summary["stopped"] == "budget"


def test_a_run_that_is_pruned_ends_whole(zoo, words, tmp_path):
    with pytest.raises(Pruned), for_trial(Trial(prunes=(1,))):
        run = train(zoo, words, tmp_path / "run")
    assert run.summary["steps"] == 1
    score = run.summary["eval_after"]
    said = f"logger 'optuna': trial 3 is pruned: eval/score {evaluations(run.path)[1]:.3f}"
    assert run.summary["stopped"] == said, score
    assert (run.path / "model" / "config.json").exists()
    assert [p.name for p in (run.path / "checkpoints").iterdir()] == ["step-00000001"]


def test_without_a_trial_or_optuna_it_is_one_line(zoo, words, tmp_path, monkeypatch, golden):
    with golden.refuses(RlzooError):
        train(zoo, words, tmp_path / "run")
    monkeypatch.delitem(sys.modules, "optuna")
    monkeypatch.setattr("rlzoo_zoo.packages.find_spec", lambda name: None)
    with golden.refuses(RlzooError):
        train(zoo, words, tmp_path / "run")
    assert not (tmp_path / "run").exists()
