"""Discovery: the zoo and a stranger's plugin come the same way; a broken one costs only itself."""

import importlib
import pickle
import sys
import textwrap
from pathlib import Path

import pytest
import torch

import rlzoo
from rlzoo.errors import UnknownName
from rlzoo.plugin.registry import PluginWarning, load_zoo
from rlzoo.plugin.sketch import sketch

GOOD = """
    from rlzoo import hookimpl

    def {name}(rewards, response_mask):
        '''Just the rewards.  Source: a test.'''
        return rewards

    @hookimpl
    def {hook}(register):
        register({name})
"""

MARKED = """
    import rlzoo

    @rlzoo.component('{kind}')
    def {name}(rewards, response_mask):
        '''Just the rewards.  Source: a test.'''
        return rewards
"""


def write(path, source, **fill):
    path.write_text(textwrap.dedent(source).format(**fill))
    return str(path)


def load(*files):
    with pytest.warns(PluginWarning) as caught:
        zoo = load_zoo(files)
    return zoo, [str(w.message) for w in caught]


def test_a_plugin_that_changes_the_folder_leaves_paths_as_they_were(tmp_path, monkeypatch):
    plugin = tmp_path / "moves.py"
    plugin.write_text(
        "import os\nos.chdir('/')\nfrom rlzoo import hookimpl\n"
        "def moved(response_mask):\n    return response_mask\n"
        "@hookimpl\ndef register_aggregations(register):\n    register(moved)\n"
    )
    monkeypatch.chdir(tmp_path)
    assert "moved" in load_zoo([str(plugin)]).aggregations
    assert Path.cwd() == tmp_path


def test_the_shipped_zoo_is_whole(zoo):
    assert zoo.broken == []
    assert {"gae", "mc", "td0", "grpo", "rloo"} <= set(zoo.estimators)
    assert {"k1", "k3"} <= set(zoo.kl_penalties)
    gae = zoo.estimators["gae"]
    assert gae.origin == f"rlzoo_zoo.estimators.gae (rlzoo-llm {rlzoo.__version__})"
    assert gae.file.startswith("rlzoo_zoo/estimators/gae.py:")
    assert "1506.02438" in gae.source
    assert pickle.loads(pickle.dumps(gae.function)) is gae.function


def test_every_shipped_component_has_docstring_and_source(zoo):
    assert [c.label for c in zoo if not c.doc or not c.source] == []


def test_a_file_is_a_plugin(tmp_path):
    zoo = load_zoo([write(tmp_path / "mine.py", GOOD, name="mine", hook="register_estimators")])
    assert zoo.estimators["mine"].needs == ("rewards", "response_mask")


def test_one_plugin_needs_no_list(tmp_path):
    file = write(tmp_path / "alone.py", GOOD, name="alone", hook="register_estimators")
    for plugin in (file, Path(file)):
        assert "alone" in load_zoo(plugin).estimators


def test_a_decorator_declares_a_component_of_its_own_module_alone(tmp_path, monkeypatch):
    file = write(tmp_path / "marked.py", MARKED, name="marked", kind="estimator")
    more = write(
        tmp_path / "further.py", MARKED, name="further", kind="kl_penalty', couples='group"
    )
    Path(more).write_text(
        "from marked import marked\n" + Path(more).read_text().replace("rewards,", "log_probs,")
        + "class Odd:\n    pass\n"
    )  # fmt: skip
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("RLZOO_PLUGINS", f"{file},{more}")
    zoo = load_zoo()
    assert (zoo.broken, zoo.notes) == ([], [])
    assert zoo.estimators["marked"].needs == ("rewards", "response_mask")
    assert zoo.kl_penalties["further"].couples == "group"
    rough = sketch()
    assert "marked" in rough.estimators
    assert rough.kl_penalties["further"].file == zoo.kl_penalties["further"].file


def test_a_class_does_not_inherit_its_declaration(tmp_path):
    source = textwrap.dedent(MARKED).replace("def {name}(rewards, response_mask):", "class Base:")
    source = source.format(kind="executor").replace("return rewards", "def run(self): ...")
    file = tmp_path / "classes.py"
    file.write_text(source + "\n\nclass Derived(Base):\n    pass\n")
    assert {"base", "derived"} & set(load_zoo([str(file)]).executors) == {"base"}


def test_the_environment_names_plugins(tmp_path, monkeypatch):
    file = write(tmp_path / "mine2.py", GOOD, name="mine2", hook="register_estimators")
    monkeypatch.setenv("RLZOO_PLUGINS", file)
    assert "mine2" in load_zoo().estimators


def test_a_plugin_named_twice_is_one(tmp_path, monkeypatch, recwarn):
    write(tmp_path / "twice_named.py", MARKED, name="mine3", kind="estimator")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("RLZOO_PLUGINS", "twice_named.py,twice_named")
    module = importlib.import_module("twice_named")
    zoo = load_zoo(["./twice_named.py", tmp_path / "twice_named.py", "twice_named", module])
    assert "mine3" in zoo.estimators
    assert "mine3" in sketch().estimators
    assert (zoo.broken, zoo.notes) == ([], [])
    assert not recwarn.list
    function = zoo.estimators["mine3"].function
    assert sys.modules[function.__module__].mine3 is function  # so it can be pickled


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("import nothing_of_that_name", "ModuleNotFoundError: No module named"),
        ("raise ValueError('at import')", "ValueError: at import (at bad.py:1)"),
        ("import sys\nsys.exit(3)", "SystemExit: 3"),
        ("def f(:", "SyntaxError"),
        (GOOD.format(name="f", hook="register_estimator"), "did you mean 'register_estimators'"),
        (GOOD.format(name="f", hook="register_estimators").replace("@hookimpl", ""), "@hookimpl"),
        (
            GOOD.format(name="f", hook="register_estimators").replace("rewards,", "reward,"),
            "no column 'reward'; did you mean 'rewards'",
        ),
        (
            GOOD.format(name="f", hook="register_estimators").replace("rewards,", "log_probs,"),
            "exists only from stage 'update' on",
        ),
        (
            GOOD.format(name="f", hook="register_estimators").replace("rewards,", "entropy,"),
            "use 'old_entropy' at this stage",
        ),
        (
            GOOD.format(name="f", hook="register_estimators").replace("rewards,", "sample,"),
            "only columns and samplers may use",
        ),
        (
            GOOD.format(name="values", hook="register_columns").replace(
                "register(values)", "register(values, shape='BT')"
            ),
            "the core computes that column",
        ),
        (GOOD.format(name="f", hook="register_columns"), "must declare its shape"),
        ("x = 1", "registers nothing"),
        (MARKED.format(name="f", kind="estimatr"), "did you mean 'estimator'"),
        (MARKED.format(name="f", kind="estimator', cuoples='row"), "did you mean 'couples'"),
        (MARKED.format(name="f", kind="estimator', name='f"), "it has: couples, shape"),
        (MARKED.format(name="f", kind="estimator").replace("def f", "async def f"), "is async"),
        (MARKED.format(name="f", kind="estimator").replace("return", "yield"), "has a yield"),
        (
            "import rlzoo\n@rlzoo.component('estimator')\nclass F:\n    pass",
            "is a class",
        ),
        (
            "import rlzoo\nfrom functools import partial\n"
            "f = rlzoo.component('estimator')(partial(max, key=len))",
            "above a function or a class",
        ),
        ("import torch\ntorch.set_default_dtype(torch.float64)", "changes torch.set_default_dtype"),
        ("import torch\ntorch.set_grad_enabled(False)", "changes torch.set_grad_enabled"),
        (
            "import torch\ntorch.exp = abs\ntorch.Tensor.sum = abs\ntorch.nn.functional.relu = abs",
            "torch.exp and Tensor.sum and torch.nn.functional.relu",
        ),
        (
            "import argparse\nargparse.ArgumentParser().parse_args(['-x'])",
            "SystemExit: 2 (at bad.py:2)",
        ),
    ],
)
def test_a_broken_plugin_is_left_out_whole_and_named(tmp_path, source, reason):
    file = tmp_path / "bad.py"
    file.write_text(textwrap.dedent(source))
    zoo, warned = load(str(file))
    assert len(zoo.broken) == 1
    assert "bad.py" in zoo.broken[0].origin
    assert reason in zoo.broken[0].reason
    assert "\n" not in str(zoo.broken[0])
    assert str(zoo.broken[0]) in warned[0]
    assert "gae" in zoo.estimators
    assert "f" not in zoo.estimators
    assert (torch.get_default_dtype(), torch.is_grad_enabled()) == (torch.float32, True)
    assert torch.exp is not abs


@pytest.mark.parametrize("name", ["./folder/", "folder/notes.txt", "a b"])
def test_a_path_that_is_no_plugin_file_is_named(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    zoo, _ = load(name)
    assert ["ends in .py" in b.reason for b in zoo.broken] == [True]


def test_a_plugin_may_have_a_method_of_c_by_name(tmp_path):
    source = "import torch\njoin, total = str.join, torch.Tensor.sum\n"
    file = write(tmp_path / "c.py", textwrap.dedent(MARKED), name="named", kind="estimator")
    Path(file).write_text(source + Path(file).read_text())
    assert "named" in load_zoo([file]).estimators


def test_one_bad_component_takes_its_plugin_out_whole(tmp_path):
    source = textwrap.dedent(GOOD.format(name="fine", hook="register_estimators"))
    source += "    register(lambda rewards: rewards)\n"
    (tmp_path / "half.py").write_text(source)
    zoo, _ = load(str(tmp_path / "half.py"))
    assert "fine" not in zoo.estimators


def test_a_dependent_of_a_broken_column_goes_too(tmp_path):
    column = GOOD.format(name="extra", hook="register_columns")
    column = column.replace("register(extra)", "register(extra, shape='BT')")
    a = write(tmp_path / "a.py", column.replace("rewards,", "nonsense,"))
    b = write(tmp_path / "b.py", GOOD.replace("rewards,", "extra,"), name="dependent",
              hook="register_estimators")  # fmt: skip
    zoo, _ = load(a, b)
    assert "dependent" not in zoo.estimators
    assert any("no column 'extra'" in b.reason for b in zoo.broken)


def test_two_plugins_with_one_name_are_an_error_that_names_both(tmp_path):
    files = [
        write(tmp_path / f"{name}.py", GOOD, name="same", hook="register_estimators")
        for name in ("one", "two")
    ]
    zoo, _ = load(*files)
    with pytest.raises(UnknownName) as caught:
        zoo.estimators["same"]
    for text in (str(caught.value), zoo.broken[0].reason):
        assert "one.py" in text
        assert "two.py" in text
    assert "mc" in zoo.estimators


def test_each_module_of_a_package_is_a_plugin_of_its_own(tmp_path, monkeypatch):
    package = tmp_path / "stranger"
    (package / "deep").mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "deep" / "__init__.py").write_text("")
    (package / "__main__.py").write_text("raise RuntimeError('a command, not a plugin')")
    (package / "helper.py").write_text("x = 1")
    (package / "broken.py").write_text("1 / 0")
    write(package / "deep" / "one.py", GOOD, name="one", hook="register_estimators")
    info = tmp_path / "stranger-1.2.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: stranger\nVersion: 1.2\n")
    (info / "entry_points.txt").write_text("[rlzoo]\nstranger = stranger\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.invalidate_caches()
    zoo = load_zoo()  # as all tests load it: whatever else is installed
    assert zoo.broken == []
    assert "one" not in zoo.estimators
    monkeypatch.delenv("RLZOO_DISABLE_PLUGIN_AUTOLOAD")
    zoo, _ = load()
    assert zoo.estimators["one"].origin == "stranger.deep.one (stranger 1.2)"
    assert "stranger.broken (stranger 1.2)" in [b.origin for b in zoo.broken]
    for name in [m for m in sys.modules if m.startswith("stranger")]:
        del sys.modules[name]


def test_a_full_name_is_found_by_each_way(zoo):
    gae = zoo.estimators["gae"]
    assert gae.full_name in zoo.estimators
    assert zoo.estimators[gae.full_name] is zoo.estimators.get(gae.full_name) is gae
    assert zoo.estimators.get("no_such_estimator") is None


def test_unknown_names_get_the_nearest(zoo):
    with pytest.raises(UnknownName, match="no estimator 'gea'; did you mean 'gae'"):
        zoo.estimators["gea"]
    with pytest.raises(AttributeError, match="did you mean 'estimators'"):
        zoo.estimatorz  # noqa: B018
