"""The loop: its budgets, what a run leaves behind, and what it survives."""

import sys
import textwrap

import pytest
import torch
from safetensors.torch import load_file

import rlzoo
from helpers.runs import lines
from rlzoo.errors import ComponentError
from rlzoo.recipe.compose import compose
from rlzoo.runs.folder import saved_steps
from rlzoo.train.loop import share_of_budget


def test_the_first_budget_reached_ends_the_run(zoo, words, tmp_path):
    run = rlzoo.run("grpo", [*words, "train.tokens=30", f"run.dir={tmp_path / 'a'}"], zoo=zoo)
    assert run.summary["tokens"] >= 30
    assert run.summary["steps"] < 3
    config = compose(["recipe=grpo", "train.minutes=1"], zoo).config.train
    assert share_of_budget(config, 0, 0, 30.0) == 0.5


def test_a_run_leaves_what_it_promises(zoo, words, tmp_path):
    run = rlzoo.run("ppo_gae", [*words, f"run.dir={tmp_path / 'a'}", "run.save_batches=2",
                                "loggers=csv"], zoo=zoo)  # fmt: skip
    assert {p.name for p in run.path.iterdir()} == {
        "recipe.yaml", "metrics.jsonl", "samples.jsonl", "summary.json", "checkpoints", "model",
        "batches", "metrics.csv", "evaluations", "provenance.json",
    }  # fmt: skip
    assert {"eval_before", "eval_after", "seconds", "tokens", "peak_rss_mb"} <= set(run.summary)
    steps = [r for r in run.metrics if "reward/mean" in r]
    assert [r["step"] for r in steps] == [1, 2, 3]
    assert [r["step"] for r in run.metrics if "eval/accuracy" in r] == [0, 3]
    tokens = sum(r["response_length/mean"] * 16 for r in steps)
    assert steps[-1]["perf/tokens"] == run.summary["tokens"] == pytest.approx(tokens)
    assert len(list((run.path / "batches").glob("*.safetensors"))) == 2
    assert "advantages" in load_file(run.path / "batches" / "step-00000003.safetensors")
    from transformers import AutoModelForCausalLM, AutoTokenizer

    AutoModelForCausalLM.from_pretrained(run.path / "model")
    assert AutoTokenizer.from_pretrained(run.path / "model")("1+1=")["input_ids"]


def test_a_small_last_batch_is_kept_unless_asked_not_to(zoo, words, tmp_path, monkeypatch):
    """With each checkpoint, and as a run that saves each step's has it."""

    def batches(name, *more):
        run = rlzoo.run("ppo_gae", [*words, f"run.dir={tmp_path / name}", *more], zoo=zoo)
        return {p.name: p.read_bytes() for p in (run.path / "batches").glob("*.safetensors")}

    ours = batches("ours", "checkpoint.every=2")
    assert list(ours) == ["step-00000003.safetensors"]
    assert ours == batches("each", "run.save_batches=1")
    assert batches("none", "run.save_batches=0") == {}
    monkeypatch.setattr("rlzoo.train.loop.SMALL", 1000)
    assert batches("large") == {}


REWARD = """
def raises(prompts, responses, answers):
    if len(responses[0]) >= 0 and any(p.startswith("{first}") for p in prompts):
        raise ValueError("I do not like it")
    return [0.0] * len(prompts)

def nan(prompts, responses, answers):
    return [float("nan") if i == 2 else 0.0 for i in range(len(prompts))]

def short(prompts, responses, answers):
    return [0.0]

def lines(prompts, responses, answers):
    raise RuntimeError("a\\n\\tb")

def group(prompts, responses, answers):
    raise BaseExceptionGroup("x", [SystemExit(0)])

def leaves(prompts, responses, answers):
    raise GeneratorExit

class Mute(Exception):
    def __str__(self):
        raise BaseExceptionGroup("x", [SystemExit(0)])

def mute(prompts, responses, answers):
    raise Mute

def fine(prompts, responses, answers):
    return [float(len(r)) for r in responses]
"""


@pytest.mark.parametrize(
    ("function", "words_said"),
    [
        ("raises", "ValueError: I do not like it"),
        ("nan", "NaN"),
        ("short", "shape (1,)"),
        ("lines", "RuntimeError: a b"),
        ("group", "BaseExceptionGroup"),
        ("leaves", "GeneratorExit"),
        ("mute", "Mute"),
    ],
)
def test_a_reward_that_fails_shows_prompt_and_response(
    zoo, words, tmp_path, monkeypatch, function, words_said
):
    (tmp_path / "my_rewards.py").write_text(REWARD.replace("{first}", ""))
    monkeypatch.syspath_prepend(str(tmp_path))
    sys.modules.pop("my_rewards", None)
    words = [*words, "rewards=python", f"rewards.python.function=my_rewards:{function}"]
    with pytest.raises(rlzoo.RlzooError) as caught:
        rlzoo.run("grpo", [*words, f"run.dir={tmp_path / 'a'}"], zoo=zoo)
    assert words_said in str(caught.value)
    assert "\n" not in str(caught.value)
    if function != "short":
        assert isinstance(caught.value, ComponentError)
        assert "on prompt '" in str(caught.value)
        assert "response '" in str(caught.value)


def test_a_python_reward_trains(zoo, words, tmp_path, monkeypatch):
    (tmp_path / "my_rewards.py").write_text(REWARD)
    monkeypatch.syspath_prepend(str(tmp_path))
    sys.modules.pop("my_rewards", None)
    words = [*words, "rewards.python.function=my_rewards:fine", "rewards.python.weight=0.5"]
    run = rlzoo.run("grpo", [*words, f"run.dir={tmp_path / 'a'}"], zoo=zoo)
    assert run.metrics[1]["score/python"] > 0


def test_a_step_that_is_not_finite_is_skipped_and_counted(zoo, words, tmp_path):
    plugin = tmp_path / "explode.py"
    plugin.write_text(
        textwrap.dedent("""
        import torch
        from rlzoo import hookimpl

        def explode(log_probs, advantages):
            '''Its gradient is infinite where log_probs are anything.  Source: a test.'''
            return (log_probs - log_probs.detach()).sqrt() * 1.0

        @hookimpl
        def register_policy_losses(register):
            register(explode)
    """)
    )
    zoo = rlzoo.load_zoo([plugin])
    with pytest.raises(rlzoo.RlzooError, match="nothing was learned: .* was not finite"):
        rlzoo.run("grpo", [*words, "policy_loss=explode", "kl.place=none",
                           f"run.dir={tmp_path / 'a'}"], zoo=zoo)  # fmt: skip
    steps = lines(tmp_path / "a")[1:]
    assert [line["train/skipped"] for line in steps if "train/skipped" in line] == [2, 2, 2]
    *_, last = saved_steps(tmp_path / "a" / "checkpoints")
    before = load_file(last / "actor.safetensors")
    assert all(torch.isfinite(x).all() for x in before.values())


def test_a_character_the_tokenizer_does_not_know(zoo, words, tmp_path):
    plugin = tmp_path / "greek.py"
    plugin.write_text(
        textwrap.dedent("""
        import torch
        from rlzoo import Example, hookimpl

        class Greek:
            '''Prompts that the character model cannot read.  Source: a test.'''
            def draw(self, split, n, generator):
                return [Example("αβγ", "", i) for i in range(n)]
            def score(self, responses):
                return torch.zeros(len(responses))

        @hookimpl
        def register_tasks(register):
            register(Greek)
    """)
    )
    with pytest.raises(rlzoo.RlzooError, match="the tokenizer has no token for 'α'"):
        rlzoo.run("grpo", [*words, "task=greek", f"run.dir={tmp_path / 'a'}"],
                  zoo=rlzoo.load_zoo([plugin]))  # fmt: skip


def test_the_limit_that_is_reached_first_ends_a_run():
    from types import SimpleNamespace

    from rlzoo.train.loop import share_of_budget

    budget = SimpleNamespace(steps=10, tokens=100, minutes=None)
    assert share_of_budget(budget, 5, 40, 0.0) == 0.5
    assert share_of_budget(budget, 5, 400, 0.0) == 1.0
