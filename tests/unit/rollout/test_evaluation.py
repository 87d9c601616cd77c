"""Evaluations: decoded by keys of their own, one answer read off, and kept prompt by prompt."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import rlzoo
from helpers.runs import StopAt
from helpers.worlds import favour, make_world, one_thread
from rlzoo.lm.prompts import PromptFormat
from rlzoo.rollout.evaluation import answer_probs, evaluate, gain
from rlzoo.rollout.sample import draw
from rlzoo.runs.evaluations import read_evaluation
from rlzoo.stats import mean_over
from rlzoo.train.start import resume
from rlzoo_lab.data.record import read_finished

one_thread = pytest.fixture(autouse=True, scope="module")(one_thread)

WORDS = ["task=addition", "task.digits=1", "rollout.max_new_tokens=3"]


def world_of(zoo, model_dir, *words):
    world = make_world(zoo, model_dir, *WORDS, *words)
    favour(world.policy, "0123456789", eos=0.5)
    return world


def test_training_temperature_does_not_move_an_evaluation(zoo, model_dir):
    plain, _ = evaluate(world_of(zoo, model_dir), 64)
    cold = world_of(zoo, model_dir, "rollout.temperature=0.05", "rollout.top_k=1")
    assert evaluate(cold, 64)[0] == plain
    assert (cold.policy.temperature, cold.policy.top_k) == (0.05, 1)  # as it was
    sharp, _ = evaluate(world_of(zoo, model_dir, "eval.temperature=0.05"), 64)
    assert sharp["eval/response_length"] != plain["eval/response_length"]
    short, _ = evaluate(world_of(zoo, model_dir, "eval.max_new_tokens=1"), 64)
    assert short["eval/response_length"] == 1


def test_the_chance_of_the_answer_is_what_accuracy_estimates(zoo, model_dir):
    """Against the product of the next-token chances, and against many samples."""
    world = world_of(zoo, model_dir, "eval.temperature=0.7")
    p = answer_probs(world, 5)
    policy, tokens = world.policy, world.policy.tokenizer
    for example, found in zip(draw(world, "test", 5, "eval", 0), p, strict=True):
        ids = tokens(example.prompt + example.answer)["input_ids"] + policy.eos_ids[:1]
        at = len(tokens(example.prompt)["input_ids"])
        with torch.no_grad():
            log_pi = (policy.model(torch.tensor([ids])).logits[0] / 0.7).log_softmax(-1)
        expected = sum(float(log_pi[t - 1, ids[t]]) for t in range(at, len(ids)))
        assert found == pytest.approx(np.exp(expected), rel=1e-4)
    line, by_prompt = evaluate(world, 2000)
    assert line["eval/answer_prob"] == pytest.approx(by_prompt["answer_prob"].mean(), rel=1e-5)
    assert line["eval/accuracy"] == by_prompt["right"].mean()
    low, high = line["eval/accuracy_low"], line["eval/accuracy_high"]
    assert low <= line["eval/answer_prob"] <= high
    assert line["eval/answer_prob_high"] - line["eval/answer_prob_low"] < high - low


def test_the_answer_has_the_space_that_the_chat_template_writes_before_it(zoo, model_dir):
    world = world_of(zoo, model_dir, "model.chat=never")
    tokenizer = world.policy.tokenizer
    tokenizer.chat_template = (
        "{% for m in messages %}{% if m.role == 'user' %}{{ m.content }}{% else %}"
        "{{ ' ' + m.content + eos_token }}{% endif %}{% endfor %}"
    )
    (example,) = draw(world, "test", 1, "eval", 0)
    spaced = example._replace(answer=f" {example.answer}")
    chat = replace(world, prompt_format=PromptFormat(tokenizer, chat="always"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("rlzoo.rollout.evaluation.draw", lambda *_: [spaced])
        (expected,) = answer_probs(world, 1)
        patch.setattr("rlzoo.rollout.evaluation.draw", lambda *_: [example])
        assert answer_probs(chat, 1) == [expected]
        assert answer_probs(world, 1) != [expected]


def test_where_there_is_no_one_answer_none_is_given(zoo, model_dir):
    assert "eval/answer_prob" not in evaluate(world_of(zoo, model_dir, "eval.top_p=0.9"), 4)[0]
    world = make_world(zoo, model_dir, "task=key_door", "rollout.max_new_tokens=4")
    line, by_prompt = evaluate(world, 4)
    assert "eval/answer_prob" not in line
    assert set(by_prompt) == {"index", "prompt", "score", "right"}
    tight = world_of(zoo, model_dir, "eval.max_new_tokens=1")  # no room for EOS
    assert answer_probs(tight, 8) == [0.0] * 8


def test_results_by_prompt_are_kept_and_resumed_exactly(zoo, words, tmp_path):
    words = [*words, "eval.every=1", "run.threads=1"]
    whole = rlzoo.run("grpo", [*words, f"run.dir={tmp_path / 'a'}"], zoo=zoo)
    with pytest.raises(KeyboardInterrupt):
        rlzoo.run("grpo", [*words, f"run.dir={tmp_path / 'b'}"], zoo=zoo, display=StopAt(3))
    files = sorted(p.name for p in (whole.path / "evaluations").iterdir())
    assert files == [f"step-{i:08d}.safetensors" for i in range(4)]
    # a line and a file that the checkpoint knows nothing of
    late = tmp_path / "b" / "evaluations" / "step-00000009.safetensors"
    late.write_bytes(b"torn")
    resume(tmp_path / "b", zoo=zoo)
    assert not late.exists()
    for name in files:
        kept = (whole.path / "evaluations" / name).read_bytes()
        assert kept == (tmp_path / "b" / "evaluations" / name).read_bytes()
        assert len(kept) < 600  # of 8 prompts: a header, 13 to 17 bytes each
    record = read_finished(whole.path)
    assert record.by_prompt["right"].mean() == whole.summary["eval_after"]
    assert (record.by_prompt["score"] == record.by_prompt["right"]).all()
    # an old folder has none, a torn file is none
    (whole.path / "evaluations" / files[-1]).write_bytes(b"torn")
    assert read_evaluation(whole.path, 3) is None
    assert read_finished(whole.path).by_prompt == {}


def test_the_gain_is_paired_by_prompt(zoo, words, tmp_path):
    """Prompts 0 to 2, the first drawn twice, as one cluster."""
    prompt = np.array([0, 0, 1, 2])
    before = {"prompt": prompt, "right": np.array([1, 0, 0, 1], np.uint8)}
    after = {"prompt": prompt, "right": np.array([1, 1, 1, 1], np.uint8)}
    found = gain(before, after)
    assert found["eval/gain"] == 0.5
    low, high = mean_over([0, 1, 1, 0], [0, 0, 1, 2])
    assert (found["eval/gain_low"], found["eval/gain_high"]) == (low, high)
    assert gain(after, before)["eval/gain"] == -0.5
    assert gain({**before, "prompt": prompt + 1}, after) == gain(None, after) == {}
    run = rlzoo.run("grpo", [*words, f"run.dir={tmp_path / 'a'}", "actor.lr=0.01"], zoo=zoo)
    first, *_, last = run.evaluations
    assert "eval/gain" not in first
    assert run.summary["eval_gain"] == pytest.approx(last["eval/accuracy"] - first["eval/accuracy"])
    assert run.summary["eval_gain_interval"] == [last["eval/gain_low"], last["eval/gain_high"]]
    for end in ("low", "high"):  # one number, one interval
        assert last[f"eval/score_{end}"] == last[f"eval/accuracy_{end}"]


@pytest.mark.landing
def test_a_response_that_is_cut_off_is_not_right():
    from types import SimpleNamespace

    import torch

    from rlzoo.plugin.protocols import abilities
    from rlzoo.rollout.evaluation import right_rows

    class Task:
        def is_correct(self, responses):
            return torch.tensor([True, True])

    batch = {"responses": ["1", "1"], "terminated": torch.tensor([True, False])}
    plan = SimpleNamespace(abilities=abilities(Task()), task_name="x")
    assert right_rows(plan, batch).tolist() == [True, False]
