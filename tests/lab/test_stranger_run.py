"""A stranger's run folder brings code beside its weights, and a recipe that says it may run."""

import json
import re

import pytest

import rlzoo
from rlzoo.cli import main


@pytest.fixture
def stranger(zoo, words, tmp_path):
    """(a finished run whose model has code of its own, a file that appears when that code runs)."""
    folder, witness = tmp_path / "run", tmp_path / "it-ran"
    words = [*words, "train.steps=1", "eval.samples=2", f"run.dir={folder}"]
    rlzoo.run("ppo_gae", words, zoo=zoo)
    model = folder / "model"
    config = json.loads((model / "config.json").read_text())
    config |= {"model_type": "own_kind", "auto_map": {
        "AutoConfig": "own.OwnConfig", "AutoModelForCausalLM": "own.OwnModel"}}  # fmt: skip
    (model / "config.json").write_text(json.dumps(config))
    (model / "own.py").write_text(
        "from pathlib import Path\n"
        "from transformers import LlamaConfig, LlamaForCausalLM\n"
        f"Path({str(witness)!r}).touch()\n"
        "class OwnConfig(LlamaConfig):\n    model_type = 'own_kind'\n"
        "class OwnModel(LlamaForCausalLM):\n    config_class = OwnConfig\n"
    )
    recipe = (folder / "recipe.yaml").read_text()
    recipe, changed = re.subn("trust_remote_code: false", "trust_remote_code: true", recipe)
    assert changed == 1
    (folder / "recipe.yaml").write_text(recipe)
    return folder, witness


@pytest.mark.parametrize(
    "verb",
    [
        ["eval", "{run}", "--samples", "2"],
        ["model", "export", "{run}", "{out}"],
        ["trace", "{run}", "--fresh"],
        ["diagnose", "{run}", "estimator=gae"],
        ["run", "recipe={run}/recipe.yaml", "model.path={run}/model", "run.dir={out}"],
        ["model", "sft", "{data}", "--model", "{run}/model", "--out", "{out}"],
    ],
    ids=lambda verb: verb[0],
)
def test_its_code_does_not_run(stranger, verb, tmp_path, capsys):
    run, witness = stranger
    data = tmp_path / "pairs.jsonl"
    data.write_text('{"prompt": "1+1=", "response": "2"}\n' * 4)
    main([w.format(run=run, out=tmp_path / "out", data=data) for w in verb])
    assert not witness.exists()
    assert "Traceback" not in capsys.readouterr().err


def test_the_command_line_may_say_so(stranger, capsys):
    run, witness = stranger
    main(["eval", str(run), "--samples", "2", "model.trust_remote_code=true"])
    assert witness.exists()
