"""What `rlzoo new` writes is, and which names it refuses; tests/processes/test_new.py uses it."""

import json
import os
import subprocess
import sys
import sysconfig
import venv

import pytest

from rlzoo import RlzooError, load_zoo
from rlzoo.cli import main
from rlzoo.plugin.component import KINDS
from rlzoo_lab.kit import new as scaffold

SINGULARS = {kind.singular: kind for kind in KINDS.values()}


def test_the_files_it_writes(tmp_path):
    written = scaffold.new("policy_loss", "brand_new", tmp_path)
    package = tmp_path / "rlzoo-brand-new"
    assert [path.relative_to(package).as_posix() for path in written] == [
        "pyproject.toml", "README.md", "rlzoo_brand_new.py", "test_rlzoo_brand_new.py",
    ]  # fmt: skip
    assert all("$" not in path.read_text() for path in written)


def test_what_it_writes_is_formatted(tmp_path):
    ruff = pytest.importorskip("ruff", reason="ruff is a development dependency").find_ruff_bin()
    for singular in SINGULARS:
        scaffold.new(singular, "brand_new", tmp_path / singular)
    for words in (["check", "--select=E,F,I,B"], ["format", "--check"]):
        command = [ruff, *words, "--isolated", "--line-length=100", str(tmp_path)]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout


@pytest.mark.landing
@pytest.mark.process
def test_a_stranger_installs_it_with_pip(tmp_path):
    """In an environment of its own, which sees this one's packages."""
    scaffold.new("estimator", "brand_new", tmp_path)
    package = tmp_path / "rlzoo-brand-new"
    venv.create(tmp_path / "venv", with_pip=False, symlinks=os.name != "nt")
    python = tmp_path / "venv" / ("Scripts" if os.name == "nt" else "bin") / "python"
    base = {"base": str(tmp_path / "venv"), "platbase": str(tmp_path / "venv")}
    site = sysconfig.get_path("purelib", vars=base)
    seen = [path for path in sys.path if "-packages" in path]
    with open(os.path.join(site, "outer.pth"), "w") as file:  # addsitedir reads .pth files, too
        file.writelines(f"import site; site.addsitedir({path!r})\n" for path in seen)
    pip = [python, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation"]
    pip += ["--no-index", "--disable-pip-version-check"]

    inherited = {k: v for k, v in os.environ.items() if k != "RLZOO_DISABLE_PLUGIN_AUTOLOAD"}

    def run(*words):
        done = subprocess.run(words, cwd=package, env=inherited, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    run(*pip, str(package))
    # In one interpreter, since each takes seconds to import torch.
    code = (
        "import json, runpy, sys, pytest, rlzoo\n"
        "c = rlzoo.load_zoo().estimators['brand_new']\n"
        "print(json.dumps([c.origin, list(c.needs), list(c.options), c.source != '']))\n"
        "assert pytest.main(['-q', '-p', 'no:cacheprovider', '-p', 'no:xdist']) == 0\n"
        "runpy.run_module('rlzoo', run_name='__main__')\n"
    )
    words = ["recipe=grpo", "estimator=brand_new", "estimator.scale=0.5", "model=nano"]
    words += ["rollout.prompts=4", "train.steps=2", "eval.samples=8", "run.dir=trained"]
    first, _, tests = run(python, "-c", code, "run", *words).partition("\n")
    origin, needs, options, sourced = json.loads(first)
    assert origin == "rlzoo_brand_new (rlzoo-brand-new 0.1.0)"
    assert needs == ["sequence_rewards", "response_mask", "group_ids"]
    assert options == ["scale"]
    assert sourced
    assert "passed" in tests
    assert "failed" not in tests
    summary = json.loads((package / "trained" / "summary.json").read_text())
    assert summary["estimator"] == "brand_new"
    assert summary["steps"] == 2


@pytest.mark.parametrize(
    ("kind", "name", "message"),
    [
        ("estimater", "mine", r"no kind 'estimater'; did you mean 'estimator'\? \(kinds: "),
        ("estimator", "my-own", "'my-own' is not a valid name for a Python function"),
        ("estimator", "2fast", "'2fast' is not a valid name"),
        ("estimator", "lambda", "'lambda' is not a valid name"),
        ("estimator", "_", "'_' is not a valid name"),
        ("estimator", "../out", "is not a valid name"),
        ("task", "MyTask", "write 'my_task' instead of 'MyTask'"),
        ("task", "größe", "'größe': names are ASCII letters, digits and _"),
        ("task", "range", "'range' is used in the template of the task"),
        ("logger", "a" * 300, "cannot create .*: File name too long"),
        ("column", "rewards", "'rewards' is a column of the core"),
        ("policy_loss", "torch", "'torch' is used in the template of the policy_loss"),
    ],
)
def test_names_that_cannot_be(kind, name, message, tmp_path):
    with pytest.raises(RlzooError, match=message) as caught:
        scaffold.new(kind, name, tmp_path)
    assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_it_never_overwrites(tmp_path):
    scaffold.new("estimator", "mine", tmp_path)
    with pytest.raises(RlzooError, match="rlzoo-mine already exists"):
        scaffold.new("reward", "mine", tmp_path)


def test_a_folder_that_cannot_be_made(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(RlzooError, match="cannot create .*rlzoo-mine"):
        scaffold.new("estimator", "mine", tmp_path / "file")


@pytest.mark.parametrize("name", ["a_b", "x_1", "two2", "plain"])
def test_a_class_keeps_the_name_that_was_asked_for(name, tmp_path):
    module = scaffold.new("task", name, tmp_path)[2]
    assert name in load_zoo(plugins=[module]).tasks


@pytest.mark.parametrize(
    ("kind", "name"),
    [("estimator", "gae"), ("executor", "local"), ("column", "greedy_scores"),
     ("estimator", "zoo"), ("task", "lab"), ("reward", "_bridges"), ("logger", "llm")],
)  # fmt: skip
def test_what_is_installed_is_not_hidden_or_replaced(kind, name, tmp_path):
    """By a component of that name, or a package of a name that pip or Python would take for it."""
    with pytest.raises(RlzooError) as caught:
        scaffold.new(kind, name, tmp_path)
    assert caught.value.kind == "taken"
    assert list(tmp_path.iterdir()) == []


def test_the_help_lists_the_kinds(capsys):
    with pytest.raises(SystemExit):
        main(["new", "--help"])
    said = capsys.readouterr().out
    assert all(kind in said for kind in SINGULARS)


def test_a_name_that_is_none_gets_the_nearest(tmp_path, capsys):
    assert main(["new", "estimator", "my-est", "--dir", str(tmp_path)]) == 2
    assert "'my_est' would be valid" in capsys.readouterr().err
    assert main(["new", "estimator", "class", "--dir", str(tmp_path)]) == 2
    assert "would be" not in capsys.readouterr().err
