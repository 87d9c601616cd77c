"""Each kind of plugin, from `rlzoo new` to two trained steps, as its author types it."""

import io
import os
import shlex
import sys
import zipfile
from contextlib import redirect_stdout

import pytest
from hatchling.build import build_wheel

from helpers.forks import finished
from helpers.runs import lines
from rlzoo.cli import main
from rlzoo.plugin.component import KINDS

NAMES = {kind.singular: f"own_{kind.singular}" for kind in KINDS.values()}
FEW = {"train.steps": 2, "eval.samples": 4, "rollout.prompts": 2, "rollout.samples": 2}
USER = """
from rlzoo import hookimpl
def uses_it(own_column, sequence_rewards):
    return own_column * sequence_rewards[:, None]
@hookimpl
def register_estimators(register):
    register(uses_it)
"""


def printed(*words, status=0):
    with redirect_stdout(io.StringIO()) as out:
        assert main([*words]) == status
    return out.getvalue()


@pytest.fixture(scope="module")
def said(tmp_path_factory):
    """kind -> the words of the last line that the verb printed. Each package is built as pip builds
    it, and is on the path as pip installs it."""
    folder, said = tmp_path_factory.mktemp("own"), {}
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("RLZOO_DISABLE_PLUGIN_AUTOLOAD")
        for kind, name in NAMES.items():
            patch.chdir(folder)
            *_, following, then = printed("new", kind, name).splitlines()
            assert following.endswith(f"rlzoo check {name}")
            said[kind] = shlex.split(then)[1:]
            patch.chdir(shlex.split(following)[4])
            with zipfile.ZipFile(folder / build_wheel(str(folder))) as wheel:
                wheel.extractall(folder / "site")
        patch.chdir(folder)
        patch.syspath_prepend(folder / "site")
        yield said
    for name in NAMES.values():
        sys.modules.pop(f"rlzoo_{name}", None)


@pytest.mark.parametrize("kind", NAMES)
def test_it_is_listed_checked_and_trained_with(kind, said, tmp_path, monkeypatch):
    name, (_, *words) = NAMES[kind], said[kind]
    assert name in printed("plugins", name)
    assert "passed" in printed("check", name)
    run = tmp_path / "run"
    if kind == "column":
        (tmp_path / "user.py").write_text(USER)
        monkeypatch.setenv("RLZOO_PLUGINS", str(tmp_path / "user.py"))
        words = ["run", "grpo", "model=nano", "estimator=uses_it"]
    elif kind == "task":
        model = str(tmp_path / "start")
        words[words.index("start")] = model
        *_, following = printed(*words, "--steps", "2", status=1).splitlines()  # not 0.3 right yet
        words = shlex.split(following)[2:]
        assert f"model.path={model}" in words
    few = FEW | ({"run.dir": run} if words[0] == "run" else {"seed": 0})
    if words[0] == "sweep":
        run /= f"{'own_estimator' if kind == 'estimator' else 'grpo'}--seed0"
        words += ["--dir", str(run.parent), "--on", NAMES["executor"]]
    words = [word for word in words if word.partition("=")[0] not in few]
    printed(*words, *(f"{key}={value}" for key, value in few.items()))
    assert [line["step"] for line in lines(run)][-1] == 2
    assert name in (run / "provenance.json").read_text() or kind in ("column", "executor", "logger")


def test_its_own_tests_pass(said):
    done = finished(pytest.main, ["-q", "-p", "no:cacheprovider", "-o", "pythonpath=site",
                                  "-c", os.devnull, "--rootdir", ".", "."])  # fmt: skip
    assert done.returncode == 0, done.stdout
    assert " passed" in done.stdout
