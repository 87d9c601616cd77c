"""`eval/greedy`: the likeliest answers to the prompts of an evaluation, whatever the sampler."""

from dataclasses import replace

import pytest
import torch

import rlzoo
from rlzoo.rollout import evaluation
from rlzoo.rollout.evaluation import held_out
from rlzoo.runs.metrics import evaluation_text

WORDS = ["device=cpu", "run.threads=1", "rollout.prompts=8", "rollout.samples=4"]


@pytest.fixture(scope="module")
def trainer():
    words = ["model=turns", "task=hi_lo", "rollout.temperature=2"]
    return rlzoo.open_recipe("reinforce_pp", [*WORDS, *words])


def test_greedy_rows_are_the_likeliest_tokens_on_the_same_prompts(trainer):
    sampled = list(held_out(trainer.world, 40))
    greedy = list(held_out(trainer.world, 40, greedy=True))
    for one, other in zip(sampled, greedy, strict=True):
        assert one["prompts"] == other["prompts"]
        assert one["answers"] == other["answers"]
    # One prompt, and an environment that answers by the number: equal numbers, equal talks.
    said = {}
    for batch in greedy:
        for answer, response in zip(batch["answers"], batch["responses"], strict=True):
            assert said.setdefault(answer, response) == response
    batch = greedy[0]
    policy = trainer.world.policy
    ids = torch.cat([batch["prompt_ids"], batch["response_ids"]], 1)
    logits = policy.model(ids).logits[:, batch["prompt_ids"].shape[1] - 1 : -1]
    likeliest = logits.argmax(-1) == batch["response_ids"]
    assert bool(likeliest[batch["response_mask"] > 0].all())


def test_an_evaluation_has_both_and_counts_the_sampled_tokens(trainer):
    found = trainer.evaluate(40)
    greedy = torch.cat([
        trainer.world.plan.task.is_correct(b["turns"], b["answers"]).float()
        for b in held_out(trainer.world, 40, greedy=True)
    ])  # fmt: skip
    sampled = sum(int(b["response_mask"].sum()) for b in held_out(trainer.world, 40))
    assert found["eval/greedy"] == pytest.approx(float(greedy.mean()))
    assert found["eval/tokens"] == sampled
    assert found["eval/accuracy"] != found["eval/greedy"]
    assert trainer.evaluate(40) == found
    assert evaluation_text(found).endswith(f"greedy {found['eval/greedy']:.3f}")


@pytest.mark.parametrize("rewards", ["task", "python"])  # counts, and scores that are no counts
def test_a_prompt_that_is_drawn_again_is_decoded_once_and_counts_again(rewards, monkeypatch):
    words = [*WORDS, "model=nano", "task=addition", "task.digits=1"]
    if rewards == "python":
        function = "helpers.rewards_for_tests:one_in_six"
        words += ["rewards=[python]", f"rewards.python.function={function}"]
    world = rlzoo.open_recipe("grpo", words).world
    if rewards == "python":
        monkeypatch.setattr(evaluation, "right_rows", lambda plan, batch: None)
    batches, plain = [], evaluation.collect

    def collect(world, examples, *given, **how):
        batches.append(examples)
        return plain(world, examples, *given, **how)

    monkeypatch.setattr(evaluation, "collect", collect)
    found = evaluation.greedy(world, 300)["eval/greedy"]
    decoded = [e for some in batches for e in some]
    batches.clear()
    total = 0.0
    for batch in held_out(world, 300, greedy=True):
        marks = evaluation.right_rows(world.plan, batch)
        total += float((batch["sequence_scores"] if marks is None else marks).sum())
    drawn = [e for some in batches for e in some]
    assert len(drawn) == 300
    assert len(decoded) == len(set(map(repr, decoded))) == len(set(map(repr, drawn))) < 300
    assert found == total / 300


def test_prompts_are_decoded_each_time_where_noise_is_asked_for(monkeypatch):
    world = rlzoo.open_recipe(
        "grpo", [*WORDS, "model=nano", "task=addition", "task.digits=1"]
    ).world
    rows, plain = [], evaluation.collect

    def collect(world, examples, *given, **how):
        rows.append(len(examples))
        return plain(world, examples, *given, **how)

    monkeypatch.setattr(evaluation, "collect", collect)
    want = evaluation.greedy(world, 100)
    few = sum(rows)
    rows.clear()
    world = replace(world, plan=replace(world.plan, needs=world.plan.needs | {"noise"}))
    assert evaluation.greedy(world, 100) == want
    assert sum(rows) == 100 > few
