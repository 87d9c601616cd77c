"""What only some commands need is an extra: training does not import it, and a command that needs
it names the extra before it works."""

import re
import subprocess
import sys
import tomllib

import pytest

from helpers import ROOT
from rlzoo import RlzooError
from rlzoo.cli import main
from rlzoo.lm.loading import load_causal_lm
from rlzoo_lab.view.figure import new_figure

OPTIONAL = ("matplotlib", "peft", "accelerate", "fsspec", "argcomplete", "starlette", "uvicorn")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = PROJECT["optional-dependencies"]
# All but fsspec, which transformers itself brings, through its hub library.
BLOCKED = """
import sys, rlzoo.cli
sys.modules |= dict.fromkeys({names!r})
sys.exit(rlzoo.cli.main(sys.argv[1:]))
"""


def names(requirements):
    return {re.split(r"[^\w.-]", line)[0] for line in requirements}


def test_they_are_an_extra_and_the_tests_have_it():
    assert not names(PROJECT["dependencies"]) & set(OPTIONAL)
    assert names(EXTRAS["lab"]) == set(OPTIONAL)
    assert re.search(r"rlzoo-llm\[.*\blab\b.*\]", EXTRAS["test"][0])


@pytest.mark.landing
def test_a_run_needs_none_of_them(tmp_path):
    words = ["run", "ppo_gae", "model=nano", "train.steps=1", "rollout.prompts=4",
             "eval.samples=16", "device=cpu", f"run.dir={tmp_path / 'run'}"]  # fmt: skip
    code = BLOCKED.format(names=tuple({*OPTIONAL} - {"fsspec"}))
    done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "run" / "summary.json").is_file()


@pytest.mark.parametrize(
    ("module", "words"),
    [
        ("peft", ["run", "grpo", "model.lora.rank=2"]),
        ("fsspec", ["run", "grpo", "--store", "file:///nowhere/a"]),
        ("matplotlib", ["compare", "runs/a", "--plots", "plots"]),
        ("uvicorn", ["serve", "grpo"]),
    ],
)
def test_a_command_that_needs_one_names_the_extra(module, words, monkeypatch, tmp_path, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, module, None)
    assert main(words) == 2
    said = capsys.readouterr().err.strip()
    assert f"needs {module}: pip install 'rlzoo-llm[lab]'" in said
    assert "\n" not in said
    assert not list(tmp_path.iterdir()), "before it begins to work"


def test_several_processes_need_accelerate(monkeypatch, tmp_path, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setitem(sys.modules, "accelerate", None)
    assert main(["run", "grpo"]) == 2
    assert "needs accelerate: pip install 'rlzoo-llm[lab]'" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_an_adapter_needs_peft_before_its_base_loads(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "peft", None)
    (tmp_path / "adapter_config.json").write_text('{"base_model_name_or_path": "/nowhere"}')
    with pytest.raises(RlzooError, match=r"rlzoo-llm\[lab\]"):
        load_causal_lm(tmp_path)


def test_completion_and_figures_name_the_extra(monkeypatch):
    for module in ("argcomplete", "matplotlib"):
        monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.setenv("_ARGCOMPLETE", "1")
    with pytest.raises(SystemExit, match=r"rlzoo-llm\[lab\]"):
        main(["sho"])
    with pytest.raises(RlzooError, match=r"rlzoo-llm\[lab\]"):
        new_figure()
