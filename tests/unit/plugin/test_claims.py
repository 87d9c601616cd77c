"""A name that two plugins claim: the zoo keeps its own, `distribution/name` reaches each."""

import json
import textwrap
import warnings

import pytest

import rlzoo
from rlzoo.cli import main, plugins
from rlzoo.errors import RecipeError, UnknownName
from rlzoo.plugin.installed import OWN
from rlzoo.recipe.compose import compose
from rlzoo.recipe.plan import make_plan
from rlzoo_lab.kit import checks

SOURCE = """
    from rlzoo import hookimpl

    def {name}({need}, response_mask):
        '''Source: a stranger.'''
        return {factor} * {need} * response_mask

    @hookimpl
    def register_{kind}(register):
        register({name}{more})
"""


STRANGERS = {
    "thief": [("gae", "estimators"), ("verifier", "rewards")],
    "one": [("same", "estimators"), ("extra", "columns")],
    "two_2": [("same", "estimators"), ("extra", "columns")],
}


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("strangers")
    for factor, (stem, components) in enumerate(STRANGERS.items(), 2):
        text = ""
        for name, kind in components:
            more = ", shape='BT'" if kind == "columns" else ""
            need = "task_scores" if kind == "rewards" else "values"
            text += textwrap.dedent(
                SOURCE.format(name=name, kind=kind, factor=factor, more=more, need=need)
            )
        (folder / f"{stem}.py").write_text(text)
    return [str(folder / f"{stem}.py") for stem in STRANGERS]


@pytest.fixture(scope="module")
def loaded(files):
    """The zoo with strangers in it, and what was warned of."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        zoo = rlzoo.load_zoo(files)
    return zoo, [str(w.message) for w in caught]


@pytest.fixture(scope="module")
def zoo(loaded):
    return loaded[0]


def test_a_stranger_cannot_take_a_name_from_the_zoo(loaded):
    zoo, told = loaded
    assert zoo.estimators["gae"].origin.startswith("rlzoo_zoo.estimators.gae")
    assert zoo.estimators["thief/gae"].file.rpartition("/")[2].startswith("thief.py")
    assert zoo.estimators[f"{OWN}/gae"] is zoo.estimators["gae"]
    assert not any("thief" in str(b) for b in zoo.broken)
    (note,) = (text for text in told if "gae" in text)
    assert note in zoo.notes
    for text in ("rlzoo_zoo.estimators.gae", "thief.py", "'thief/gae'"):
        assert text in note


@pytest.mark.parametrize("need", ["values", "no_column"])
def test_a_strangers_file_with_the_zoos_name_is_not_the_zoo(tmp_path, need):
    text = SOURCE.format(name="gae", kind="estimators", factor=2, more="", need=need)
    (tmp_path / "rlzoo_llm.py").write_text(textwrap.dedent(text))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        zoo = rlzoo.load_zoo([tmp_path / "rlzoo_llm.py"])
    assert zoo.estimators["gae"].origin.startswith("rlzoo_zoo.estimators.gae")
    if need == "values":
        assert [note for note in zoo.notes if "rename" in note] == zoo.notes != []
        assert zoo.broken == []
    else:  # it is left out before anything is disputed
        assert zoo.notes == []
        assert ["rlzoo_llm.py" in b.origin for b in zoo.broken] == [True]
        assert zoo.estimators[f"{OWN}/gae"] is zoo.estimators["gae"]


def test_two_strangers_have_it_by_their_distributions_alone(zoo):
    assert "same" not in zoo.estimators
    assert [n for n in zoo.estimators if "same" in n] == ["one/same", "two-2/same"]
    with pytest.raises(UnknownName, match="use one/same or two-2/same"):
        zoo.estimators["same"]
    assert zoo.estimators["two-2/same"].name == "same"
    assert len(zoo.estimators) == len(list(zoo.estimators))


def test_every_component_has_its_long_name(zoo):
    assert zoo.estimators[f"{OWN}/gae"] is zoo.estimators["gae"]
    assert f"{OWN}/gae" in zoo.estimators
    assert "nobody/gae" not in zoo.estimators
    with pytest.raises(UnknownName, match="no estimator 'nobody/gae'"):
        zoo.estimators["nobody/gae"]


def test_a_recipe_chooses_by_the_long_name_and_the_run_says_so(zoo):
    words = ["recipe=ppo_gae", "model=nano", "task=reverse"]
    assert make_plan(compose(words, zoo), zoo).estimator.name == "gae"
    plan = make_plan(compose([*words, "estimator=thief/gae"], zoo), zoo)
    assert plan.estimator.name == "thief/gae"
    assert plan.estimator.component.file.rpartition("/")[2].startswith("thief.py")


def test_a_column_that_two_make_is_the_recipes_to_choose(zoo):
    words = ["recipe=ppo_gae", "model=nano", "task=reverse"]
    plan = make_plan(compose([*words, "columns=[two-2/extra]"], zoo), zoo)
    (column,) = plan.columns
    assert column.name == "extra"  # as others ask for it
    assert column.component.file.rpartition("/")[2].startswith("two_2.py")
    with pytest.raises(RecipeError, match="use one/extra or two-2/extra"):
        compose([*words, "columns=[extra]"], zoo)


def test_a_reward_by_its_long_name_keeps_its_weight(zoo):
    words = ["recipe=ppo_gae", "model=nano", "task=reverse", "rewards=[verifier,thief/verifier]"]
    plan = make_plan(compose([*words, "rewards.thief/verifier.weight=0.5"], zoo), zoo)
    assert {name: weight for name, (weight, _) in plan.rewards.items()} == {
        "verifier": 1.0,
        "thief/verifier": 0.5,
    }


def test_plugins_lists_both_and_says_who_has_the_name(zoo, files, monkeypatch, capsys):
    pairs = [(name, c) for shelf in zoo.shelves.values() for name, c in shelf.items()]
    assert "thief/gae" in "\n".join(plugins.lists(pairs, whole=False))
    monkeypatch.setenv("RLZOO_PLUGINS", files[0])
    assert main(["plugins", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    names = [c["name"] for c in document["components"] if c["kind"] == "estimator"]
    assert {"gae", "thief/gae"} <= set(names)
    assert "'thief/gae'" in "".join(document["notes"])


def test_check_judges_the_one_that_is_named(zoo):
    (found,) = checks.named("thief/gae", zoo)
    assert found.file.rpartition("/")[2].startswith("thief.py")
    (found,) = checks.named("gae", zoo)
    assert found.distribution == OWN
