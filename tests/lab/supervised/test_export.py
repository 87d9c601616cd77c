"""`rlzoo model export`: what is written loads, is the run's policy, and says what it is."""

import json
import re
import shutil

import pytest
import torch
import yaml
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig

import rlzoo
from helpers.rewards_for_tests import LETTERS
from rlzoo.cli import parser_of
from rlzoo.cli.verb import perform
from rlzoo.errors import RlzooError
from rlzoo.runs.folder import RunFolder
from rlzoo_lab.supervised import export


def train(place, model_dir, *more):
    words = [
        *(f"model.path={model_dir}", "rollout.prompts=4", "rollout.samples=4", "device=cpu"),
        *("rollout.max_new_tokens=5", "train.steps=3", "train.minibatches=2", "eval.samples=8"),
        *("eval.every=2", "checkpoint.every=1", "checkpoint.keep=5", "checkpoint.best=true"),
        *("rollout.temperature=0.7", "actor.lr=0.05", *LETTERS, f"run.dir={place}", *more),
    ]
    return rlzoo.run("grpo", words)


@pytest.fixture(scope="module")
def run(model_dir, tmp_path_factory):
    return train(tmp_path_factory.mktemp("export") / "letters", model_dir)


@pytest.fixture(scope="module")
def lora(model_dir, tmp_path_factory):
    return train(tmp_path_factory.mktemp("export") / "lora", model_dir, "model.lora.rank=4")


def logits(model):
    with torch.no_grad():
        return model.eval()(torch.tensor([[5, 6, 7, 8]])).logits.float()


def load(place, **how):
    return AutoModelForCausalLM.from_pretrained(place, **({"dtype": torch.float32} | how))


def front_of(place):
    """The card's front matter and its text."""
    _, front, text = (place / "README.md").read_text().split("---\n", 2)
    return yaml.safe_load(front), text


def test_the_exported_model_is_the_runs(run, tmp_path):
    document = rlzoo.export(run.path, tmp_path / "out")
    assert document["what"] == "model"
    assert document["step"] == 3
    assert set(document["files"]) == {p.name for p in (tmp_path / "out").iterdir()}
    ours, theirs = load(tmp_path / "out"), load(run.path / "model")
    assert torch.equal(logits(ours), logits(theirs))
    assert ours.dtype == torch.float32
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "out")
    assert tokenizer.get_vocab() == AutoTokenizer.from_pretrained(run.path / "model").get_vocab()
    assert [p.name for p in tmp_path.iterdir()] == ["out"]


def test_it_generates_as_it_was_trained(run, tmp_path):
    rlzoo.export(run.path, tmp_path / "out")
    found = GenerationConfig.from_pretrained(tmp_path / "out")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "out")
    assert (found.do_sample, found.temperature, found.top_k, found.top_p) == (True, 0.7, 0, 1.0)
    assert found.max_new_tokens == 5
    assert tokenizer.eos_token_id in found.eos_token_id


def test_the_card_says_what_the_model_is(run, tmp_path):
    rlzoo.export(run.path, tmp_path / "out")
    front, text = front_of(tmp_path / "out")
    assert front["library_name"] == "transformers"
    assert front["tags"] == ["rlzoo", "reinforcement-learning", "grpo"]
    recipe = yaml.safe_load((run.path / "recipe.yaml").read_text())
    assert front["base_model"] == recipe["model"]["path"]
    shown = re.search(r"```yaml\n(.*?)```", text, re.DOTALL)[1]
    assert yaml.safe_load(shown) == recipe
    for key in ("before", "after"):
        low, high = run.summary[f"eval_{key}_interval"]
        numbers = f"{run.summary[f'eval_{key}']:.3f} | {low:.3f} to {high:.3f}"
        counts = f"8 | {run.summary['eval_prompts']} |"
        assert f"| {run.summary['eval_metric']} | {numbers} | {counts}" in text, key
    assert "text prompts are unchanged, and messages use the chat template" in text
    assert f"{run.summary['tokens']:,} generated tokens" in text
    for name, version in export.versions().items():
        assert f"{name} {version}" in text
    code = re.search(r"```python\n(.*?)```", text, re.DOTALL)[1]
    space = {}
    exec(code.replace('"DIR"', repr(str(tmp_path / "out"))), space)
    assert torch.equal(logits(space["model"].float()), logits(load(run.path / "model")))


def test_a_recipe_s_texts_stay_within_their_places_on_the_card(run, tmp_path):
    rlzoo.export(run.path, tmp_path / "out")
    recipe = yaml.safe_load((run.path / "recipe.yaml").read_text())
    odd = "a\n```\n# b | <img src=x> ````"
    recipe["task"] |= {"name": odd, "text": odd}
    folder = RunFolder(run.path)
    weights = export.choose(folder, None)
    card = export.model_card(folder, weights, recipe, tmp_path / "out", dtype=None)
    text, shown = re.split(r"^`````yaml\n", card, flags=re.MULTILINE)
    assert yaml.safe_load(shown.removesuffix("`````\n")) == recipe
    assert len(re.findall("^#+ ", text, re.MULTILINE)) == 5
    assert not re.search(r"(?<!\\)<img", text)
    assert {len(re.findall(r"(?<!\\)\|", x)) for x in text.splitlines() if x[:1] == "|"} == {7}


def test_samples_of_prompts_that_came_again_are_counted_as_such(run, tmp_path):
    """The card's counts are the evaluation's: 8 samples of 5 prompts are not 8 prompts."""
    place = shutil.copytree(run.path, tmp_path / "run")
    file = place / "metrics.jsonl"
    file.write_text(file.read_text().replace('"eval/prompts": 8', '"eval/prompts": 5'))
    rlzoo.export(place, tmp_path / "out")
    results = front_of(tmp_path / "out")[1].partition("## Training")[0]
    cells = [line.split("|")[-3:-1] for line in results.splitlines() if line.startswith("| these")]
    assert [[c.strip() for c in row] for row in cells] == [["8", "5"]]
    assert "one response each" not in results


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_dtype_is_of_the_weights(run, tmp_path, dtype):
    rlzoo.export(run.path, tmp_path / "out", dtype=dtype)
    kept = load_file(tmp_path / "out" / "model.safetensors")
    assert {x.dtype for x in kept.values()} == {getattr(torch, dtype)}
    assert load(tmp_path / "out", dtype="auto").dtype == getattr(torch, dtype)
    torch.testing.assert_close(
        logits(load(tmp_path / "out")), logits(load(run.path / "model")), atol=0.1, rtol=0.1
    )


@pytest.mark.parametrize("which", ["2", "best"])
def test_a_checkpoint_is_exported_with_its_own_numbers(run, tmp_path, which):
    document = rlzoo.export(run.path, tmp_path / "out", checkpoint=which)
    step = run.summary["best_step"] if which == "best" else 2
    assert document["step"] == step
    assert step in (0, 2, 3)
    kept = load_file(tmp_path / "out" / "model.safetensors")
    if step:
        then = load_file(run.path / "checkpoints" / f"step-{step:08d}" / "actor.safetensors")
        assert all(torch.equal(kept[k], then[k]) for k in then)
        own = next(m for m in run.metrics if m["step"] == step and "eval/score" in m)
        what = run.summary["eval_metric"]
        _, text = front_of(tmp_path / "out")
        assert f"| these weights (step {step}) | {what} | {own[f'eval/{what}']:.3f} |" in text
    assert ("chosen by that result" in front_of(tmp_path / "out")[1]) == (which == "best")
    assert not (tmp_path / "out" / "best.json").exists()


def test_a_step_without_an_evaluation_says_so(run, tmp_path):
    rlzoo.export(run.path, tmp_path / "out", checkpoint="1")
    text = front_of(tmp_path / "out")[1]
    assert "not evaluated at step 1" in text
    assert "these weights" not in text


# ---------------------------------------------------------------- adapters


def test_an_adapter_is_copied_and_says_what_it_needs(lora, tmp_path, model_dir):
    document = rlzoo.export(lora.path, tmp_path / "out", checkpoint="best")
    assert document["what"] == "adapter"
    assert "best.json" not in document["files"]
    assert "adapter_model.safetensors" in document["files"]
    assert "model.safetensors" not in document["files"]
    assert document["base"] == str(model_dir)
    front, text = front_of(tmp_path / "out")
    assert (front["library_name"], front["base_model_relation"]) == ("peft", "adapter")
    assert "AutoPeftModelForCausalLM" in text


@pytest.mark.parametrize("which", [None, "2"])
def test_a_merged_adapter_is_the_same_policy(lora, tmp_path, model_dir, which):
    from peft import AutoPeftModelForCausalLM

    rlzoo.export(lora.path, tmp_path / "whole", merge=True, checkpoint=which)
    rlzoo.export(lora.path, tmp_path / "adapter", checkpoint=which)
    merged = load(tmp_path / "whole")
    adapter = AutoPeftModelForCausalLM.from_pretrained(tmp_path / "adapter", dtype=torch.float32)
    torch.testing.assert_close(logits(merged), logits(adapter), atol=1e-4, rtol=0)
    assert (logits(merged) - logits(load(model_dir))).abs().max() > 1e-2  # it has learned
    assert not (tmp_path / "whole" / "adapter_config.json").exists()


# ---------------------------------------------------------------- refusals


def command(*argv):
    parser = parser_of("model export")
    return perform(export, parser.parse_intermixed_args([str(a) for a in argv]))


def test_the_command_prints_one_document(run, tmp_path, capsys):
    assert command(run.path, tmp_path / "a", "--json", "--dtype", "bfloat16") == 0
    document = json.loads(capsys.readouterr().out)
    assert document["path"] == str(tmp_path / "a")
    assert document["dtype"] == "bfloat16"
    assert command(run.path, tmp_path / "b") == 0
    assert "model, after step 3" in capsys.readouterr().out


def test_a_folder_that_is_not_empty_is_left_alone(run, tmp_path, golden):
    (tmp_path / "out").mkdir()
    rlzoo.export(run.path, tmp_path / "out")  # an empty one will do
    with golden.refuses(RlzooError):
        rlzoo.export(run.path, tmp_path / "out")
    (tmp_path / "file").write_text("precious")
    with golden.refuses(RlzooError):
        rlzoo.export(run.path, tmp_path / "file")
    assert (tmp_path / "file").read_text() == "precious"


def test_an_unfinished_run_is_refused_unless_told_which_weights(run, tmp_path, golden):
    cut = tmp_path / "cut"
    shutil.copytree(run.path, cut)
    shutil.rmtree(cut / "model")
    (cut / "summary.json").unlink()
    with golden.refuses(RlzooError):
        rlzoo.export(cut, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    rlzoo.export(cut, tmp_path / "out", checkpoint="last")
    assert torch.equal(logits(load(tmp_path / "out")), logits(load(run.path / "model")))


def test_what_fails_leaves_nothing_behind(run, lora, tmp_path, golden):
    with golden.refuses(RlzooError):
        rlzoo.export(lora.path, tmp_path / "out", dtype="bfloat16")
    with golden.refuses(RlzooError):
        rlzoo.export(run.path, tmp_path / "out", checkpoint="9")
    with golden.refuses(RlzooError):
        rlzoo.export(tmp_path / "nowhere", tmp_path / "out")
    assert list(tmp_path.iterdir()) == []
