"""A run is read whatever its folder is called: a sweep's runs are called `lam=0.5--seed0`."""

import json
import shutil

import pytest

import rlzoo
from rlzoo.cli import main
from rlzoo.recipe.words import read_value
from rlzoo.runs.folder import RunFolder, is_run
from rlzoo_lab.data.weights import choose
from rlzoo_lab.data.words import quoted

NAMES = ["lam=0,5[1]--seed0", "recipe=x", "a: b #c", "'quoted'"]


@pytest.fixture(scope="module")
def runs(zoo, words_of_a_run, tmp_path_factory):
    folder = tmp_path_factory.mktemp("odd")
    rlzoo.run("ppo_gae", [*words_of_a_run, f"run.dir={folder / 'run'}"], zoo=zoo)
    for name in NAMES:
        shutil.copytree(folder / "run", folder / name)
    return folder


@pytest.fixture(scope="module")
def words_of_a_run(model_dir):
    return [
        f"model.path={model_dir}", "device=cpu", "rollout.prompts=2", "rollout.samples=2",
        "rollout.max_new_tokens=4", "train.steps=1", "eval.samples=2", "run.save_batches=1",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "verb",
    [
        ["eval", "--prompts", "2"],
        ["trace", "--fresh"],
        ["diagnose", "estimator=gae"],
        ["doctor"],
    ],
    ids=lambda verb: verb[0],
)
def test_a_verb_reads_it(runs, verb, capsys):
    name, *more = verb
    assert main([name, str(runs / NAMES[0]), *more, "--json"]) in (0, 1)
    assert isinstance(json.loads(capsys.readouterr().out), dict)


@pytest.mark.parametrize("name", NAMES)
def test_its_weights_are_a_word_that_reads_as_it_was_meant(runs, name):
    assert is_run(str(runs / name))
    (word,) = choose(RunFolder(runs / name), None).words()
    key, _, text = word.partition("=")
    assert read_value(key, text) == str(runs / name / "model")


def test_a_key_is_no_run():
    assert not is_run("seed=1")
    assert is_run("runs/x")
    assert read_value("x", quoted('a"b\\c${d}')) == 'a"b\\c${d}'
