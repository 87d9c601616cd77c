"""Each rule on metrics that trigger it and on metrics that do not; no alarm on a healthy run."""

import json
from zlib import crc32

import pytest

import rlzoo
from helpers.worlds import one_thread
from rlzoo import RlzooError
from rlzoo.cli import main
from rlzoo_lab.data.record import Record
from rlzoo_lab.doctor import agents, symptoms
from rlzoo_lab.doctor.command import examine
from rlzoo_lab.doctor.rules import RULES

threads = pytest.fixture(scope="module", autouse=True)(one_thread)

N = 30
RECIPE = {
    "kl.coef": 0.01, "kl.place": "reward", "kl.controller": "fixed", "kl.target": 1.0,
    "actor.lr": 2e-4, "actor.max_grad_norm": 1.0, "actor.eps": 1e-6, "actor.weight_decay": 0.0,
    "actor.lr_warmup": 0, "actor.entropy_coef": 0.0, "critic.lr": 1e-3, "critic.eps": 1e-6,
    "critic.max_grad_norm": 1.0, "critic.lr_warmup": 0, "critic.weight_decay": 0.0,
    "rollout.samples": 4, "rollout.max_new_tokens": 8, "rollout.top_k": 0, "rollout.top_p": 1.0,
    "rollout.prompts": 16, "rollout.temperature": 1.0, "estimator.gamma": 1.0, "device": "cpu",
    "train.epochs": 1, "train.minibatches": 4, "train.critic_warmup": 0, "eval.samples": 512,
    "policy_loss.name": "ppo_clip", "policy_loss.clip_low": 0.2, "policy_loss.clip_high": 0.2,
    "rewards.verifier.weight": 1.0, "recipe": "ppo_gae", "critic.trunk": "own", "critic.coef": 0.5,
    "critic.low": -1.0, "critic.high": 2.0, "value_loss.name": "clipped_mse",
    "eval.temperature": 1.0, "eval.top_k": 0, "eval.top_p": 1.0, "model.lora.rank": 0,
    "rollout.staleness": 0, "estimator.lam": 0.95,
}  # fmt: skip
# A run in which all is well: a function of the share of the run, or a number.
HEALTHY = {
    "reward/mean": lambda x: 0.3 + 0.4 * x,
    "score/std": 0.4,
    "group/no_signal": lambda x: 0.3 + 0.2 * x,
    "actor/ref_kl": lambda x: 0.1 * x,
    "actor/entropy": lambda x: 1.0 - 0.5 * x,
    "actor/pg_loss": 0.1,
    "actor/ppo_kl": 1e-3,
    "actor/ratio_mean": 1.0005,
    "actor/pg_clipfrac": 0.02,
    "actor/grad_norm": 0.6,
    "actor/lr": 2e-4,
    "actor/first_ratio_gap": 3e-7,
    "actor/kl_coef": 0.01,
    "critic/lr": 1e-3,
    "critic/mc_corr": 0.98,
    "values/mean": lambda x: 0.3 + 0.4 * x,
    "values/std": 0.1,
    "returns/mean": lambda x: 0.3 + 0.4 * x,
    "returns/std": 0.35,
    "rewards/std": 0.4,
    "score/right_corr": 0.9,
    "response/distinct": lambda x: 0.8 - 0.2 * x,
    "group/distinct": lambda x: 0.9 - 0.2 * x,
    "score/noise": 0.0,
    "actor/pull_corr": 0.99,
    "actor/ref_kl_per_response": lambda x: 0.5 * x,
    "score/max": 1.0,
    "score/min": 0.0,
    "raw_advantages/score_corr": 0.9,
    "prompts/distinct": 1.0,
    "critic/grad_norm": 1.2,
    "critic/vf_loss": 0.1,
    "critic/vf_explained_var": lambda x: 0.5 * x - 0.05,
    "sampler/log_prob_gap": 0.0,
    "response/truncated": lambda x: 0.05 * x,
    "response_length/mean": 5.0,
    "raw_advantages/std": 0.4,
    "advantages/mean": 0.0,
    "advantages/std": 1.0,
    "train/skipped": 0.0,
}


def record(changes=None, *, without=(), recipe=None, accuracy=(0.3, 0.6), n=N, cut=0.0):
    """A made-up run; `changes`: metric -> number, function of the share, or list."""
    metrics = {**HEALTHY, **(changes or {})}
    if "rewards/mean" not in (changes or {}):
        metrics["rewards/mean"] = metrics["reward/mean"]  # less a KL that is next to nothing
    first, final = (accuracy or (0.0,))[0], (accuracy or (0.0,))[-1]
    metrics.setdefault("response/right", lambda x: first + (final - first) * x)
    metrics = {k: v for k, v in metrics.items() if k not in without}

    def at(value, i):
        noise = 1e-3 * (-1) ** i
        if isinstance(value, list):
            return value[i]
        return value(i / (n - 1)) + noise if callable(value) else value

    steps = [{"step": i + 1, **{k: at(v, i) for k, v in metrics.items()}} for i in range(n)]
    for step in steps:
        if "critic/vf_bias" not in step and "values/mean" in step:
            step["critic/vf_bias"] = step["values/mean"] - step["returns/mean"]
    evaluations = [
        {"step": i * (n - 1) // max(1, len(accuracy) - 1), "eval/accuracy": a,
         "eval/accuracy_low": a - 0.03,
         "eval/accuracy_high": a + 0.03, "eval/truncated": cut}
        for i, a in enumerate(accuracy)
    ]  # fmt: skip
    return Record(steps, evaluations, {**RECIPE, **(recipe or {})}, {"steps": n})


def names(run):
    return {f.rule: f for f in examine(run)[0]}


def test_a_healthy_record_has_no_finding():
    assert names(record()) == {}
    assert examine(record())[1] == {}


FLAT = {"reward/mean": [0.3 + 0.02 * (-1) ** i for i in range(N)]}
STILL = {**FLAT, "actor/ppo_kl": 1e-7, "actor/ref_kl": 1e-7, "actor/ratio_mean": 1.0}
FALLS = {"reward/mean": lambda x: 0.4 - 0.35 * x}
OPEN = {"without": ["score/right_corr", "response/right"], "accuracy": ()}
NO_KL = ["actor/ppo_kl"]  # as in the log of another trainer
BREAKS = {"reward/mean": [0.4, *[0.0] * (N - 1)]}
LEANS = {"critic/mc_corr": 0.5, "critic/vf_explained_var": 0.0}
VERDICT = {"reward/mean": 0.3, "score/mean": 0.3, "score/std": 0.21**0.5, "score/min": 0.0,
           "score/max": 1.0}  # fmt: skip


def ended(why):
    """A run of 4 steps of 24 that ended for this reason."""
    run = record(n=4, recipe={"train.steps": 24})
    run.summary.update(steps=4, stopped=why)
    return run


def sampled(run, triples):
    """The run, with (prompt, response, answer, score) as its samples."""
    keys = ("prompt", "response", "answer", "score")
    run.__dict__["samples"] = [dict(zip(keys, t, strict=True)) for t in triples]
    return run


SUMS = [(f"{a}+{b}=", str(a + b), str(a + b), 0.0) for a in range(10, 14) for b in range(20, 25)]
NEAR = [(p, str(int(r) + 3 * (i % 2)), r, 1.0) for i, (p, r, _, _) in enumerate(SUMS)]
FILE = {"task.path": "data.jsonl"}


def held_out(run, triples):
    """The run, whose last evaluation had the prompts and answers of these samples."""
    pairs = [(prompt, repr(answer)) for prompt, _, answer, _ in triples]
    run.__dict__["by_prompt"] = {"prompt": [crc32(repr(p).encode()) for p in pairs]}
    return run


def paid_by_two(style, verifier, **more):
    """A run with two rewards, as evaluations found each of them."""
    run = record(**more)
    lines = [
        {**line, "eval/reward/style": a, "eval/reward/verifier": b}
        for line, a, b in zip(run.evaluations, style, verifier, strict=True)
    ]
    return Record(list(run.steps), lines, run.recipe, run.summary)


WARMING = {"actor.lr": 2e-4, "actor.lr_warmup": 1000}
CUT = {"task.max_prompt": 5, "task.too_long": "cut_start"}
CASES = {  # rule -> (triggers, does not)
    "data_differ_before_training": (
        record({"response/right": lambda x: 0.5 * x}, accuracy=(0.4, 0.6)),
        record({"response/right": lambda x: 0.5 * x}, accuracy=(0.4, 0.6),
               recipe={"eval.temperature": 0.5}),
    ),
    "held_out_prompts_are_trained_on": (
        held_out(sampled(record(recipe=FILE), SUMS), SUMS),
        held_out(sampled(record(recipe=FILE), SUMS[:10]), SUMS[10:]),
    ),
    "advantages_not_centred": (
        record({"advantages/mean": -0.9}),
        record({"advantages/mean": -0.9, "actor/teacher_kl": lambda x: 4 - 3 * x}),
    ),
    "prompts_are_cut": (
        record({"prompt_length/mean": 4.9}, recipe=CUT),
        record({"prompt_length/mean": 3.0}, recipe=CUT),
    ),
    "not_finite": (
        record({"actor/pg_loss": [0.1] * 7 + [float("nan")] + [0.1] * (N - 8)}),
        record(),
    ),
    "updates_skipped": (
        record({"train/skipped": [0.0] * 9 + [4.0] + [0.0] * (N - 10)}),
        record({"train/skipped": 0.0}),
    ),
    "sampler_and_policy_disagree": (
        record({"sampler/log_prob_gap": 0.2}, recipe={"rollout.top_k": 5}),
        record({"sampler/log_prob_gap": 0.2}, recipe={"correction.name": "any"}),
    ),
    "ratio_not_one_at_first": (
        record({"actor/first_ratio_gap": 0.01}),
        record({"actor/first_ratio_gap": 0.01}, recipe={"device": "cuda"}),  # half precision
    ),
    "advantages_do_not_follow_scores": (
        record({"raw_advantages/score_corr": -0.8}),
        record({"raw_advantages/score_corr": 0.4}),
    ),
    "reward_does_not_measure_correctness": (
        record({"score/right_corr": [0.1 * (-1) ** i for i in range(N)]}),
        record({"score/right_corr": [0.25 + 0.1 * (-1) ** i for i in range(N)]}),
    ),
    "ended_early": (
        ended("accuracy did not exceed 0.4 by 0.2 in 1 evaluations"),
        ended("accuracy 0.950 reached the target 0.95"),
    ),
    "evaluation_samples_differently": (
        record({"response/right": 0.4}, accuracy=(0.02, 0.03), recipe={"eval.temperature": 3.0}),
        record(accuracy=(0.3, 0.6), recipe={"eval.temperature": 0.9}),
    ),
    "teacher_has_no_effect": (
        record({"actor/teacher_kl": 7.0, **FLAT}, accuracy=(0.3, 0.3)),
        record({"actor/teacher_kl": lambda x: 4 - 3 * x}),
    ),
    "actor_not_trained": (
        record(without=[k for k in HEALTHY if k.startswith("actor/")],
               recipe={"train.critic_warmup": 50}),
        record(recipe={"train.critic_warmup": 5}),
    ),
    "optimizer_setting_is_harmful": (
        record({"actor/lr": 2e-4}, recipe={"actor.weight_decay": 100.0}),
        record({"actor/lr": 1e-6}, recipe={"actor.weight_decay": 0.1}),
    ),
    "kl_too_strong": (
        record({"rewards/std": 1.4, "actor/kl_coef": 10.0}, recipe={"kl.coef": 10.0}),
        record({"rewards/std": 1.4}),  # far away, at the usual coefficient
    ),
    "entropy_bonus_too_strong": (
        record({**FALLS, "actor/entropy": lambda x: 1 + x}, recipe={"actor.entropy_coef": 0.1}),
        record({"actor/entropy": lambda x: 1 + x}, recipe={"actor.entropy_coef": 1e-3}),
    ),
    "temperature_far_from_one": (
        record(FLAT, recipe={"rollout.temperature": 3.0}),
        record(recipe={"rollout.temperature": 0.7}),
    ),
    "update_too_large": (
        record({"actor/ppo_kl": 0.5}),
        record({"actor/pg_clipfrac": 0.4, "actor/ppo_kl": 0.002}),
    ),
    "first_updates_break_the_policy": (
        record({**BREAKS, "actor/entropy": [1.0, 1.4, 1.8, *[2.2] * (N - 3)]}, without=NO_KL),
        record(BREAKS, without=NO_KL),  # the policy is as before: the reward stopped
    ),
    "length_limit_too_short": (
        record({"response/truncated": 0.6}),
        record({"response/truncated": 0.6}, **OPEN),  # nothing is right or wrong
    ),
    "evaluation_too_small": (record(recipe={"eval.samples": 16}), record()),
    "evaluation_cut_off": (record(cut=0.6), record({"response/truncated": 0.5}, cut=0.6)),
    "critic_does_not_learn": (
        record({"critic/lr": 0.0}, recipe={"critic.lr": 0.0}),
        record({"critic/lr": 1e-3}),
    ),
    "critic_worse_than_a_constant": (
        record({"critic/vf_explained_var": -0.4}),
        record({"critic/vf_explained_var": lambda x: -0.6 + 0.6 * min(1, 2 * x)}),
    ),
    "reward_constant": (
        record({"score/std": 0.0, "reward/mean": 0.0}, accuracy=(0.0, 0.0)),
        record({"score/std": [0.4] * 20 + [0.0] * 10}, accuracy=(0.3, 1.0)),
    ),
    "no_signal_in_groups": (
        record({"group/no_signal": 0.9}, without=["critic/vf_loss"]),
        record({"group/no_signal": 0.9}),  # a critic needs no group
    ),
    "loss_does_not_follow_advantages": (
        record({"actor/pull_corr": -0.99}),
        record({"actor/pull_corr": 0.5}),  # weights of tokens
    ),
    "samples_are_copies": (
        record({"group/distinct": 0.25}),
        record({"group/distinct": 0.25, "actor/entropy": 0.01}),  # it is sure
    ),
    "training_and_held_out_differ": (
        record({"response/right": lambda x: 0.3 + 0.6 * x}, accuracy=(0.3, 0.35, 0.4)),
        record({"response/right": lambda x: 0.3 + 0.35 * x}),
    ),
    "held_out_score_falls": (
        record(FLAT, accuracy=(0.3, 0.7, 0.5)),
        record(accuracy=(0.3, 0.7, 0.66)),
    ),
    "reward_falling": (
        record({"reward/mean": lambda x: 0.6 - 0.4 * x}, accuracy=(0.3, 0.31)),
        record(FLAT),
    ),
    "kl_exploding": (
        record({"actor/ref_kl": lambda x: 2 * x**3}),
        record({"actor/ref_kl": lambda x: 0.5 * x}),
    ),
    "reward_flat": (record(FLAT, accuracy=(0.3, 0.31)), record(FLAT, accuracy=(0.3, 0.6))),
}  # fmt: skip


def test_every_rule_has_its_case():
    own = {"component_fails_its_check"}  # test_components.py
    own |= {r.name for r in RULES if r.judge.__module__ == agents.__name__}  # test_agents.py
    assert {r.name for r in RULES} == set(CASES) | own


WARM = {"actor/lr": [2e-7 * i for i in range(1, N + 1)]}
TINY = {"actor/grad_norm": 0.4}


@pytest.mark.parametrize(
    ("changes", "recipe", "harmless", "key"),
    [
        ({"actor/lr": 0.0}, {"actor.lr": 0.0}, {"actor/lr": 1e-6}, "actor.lr=0 "),
        (WARM, WARMING, {"actor/lr": [2e-5 * min(i, 10) for i in range(1, N + 1)]},
         "actor.lr_warmup=1000"),
        ({**FLAT, "actor/lr": 1e-10}, {"actor.lr": 1e-10}, {}, "actor.lr=1e-10"),
        (TINY, {"actor.max_grad_norm": 1e-6}, {"actor/grad_norm": 1e-6}, "actor.max_grad_norm"),
        (TINY, {"actor.eps": 0.1, "actor.max_grad_norm": None}, {"actor/grad_norm": 100.0},
         "actor.eps=0.1"),
        ({}, {"actor.weight_decay": 100.0}, {"actor/lr": 1e-7}, "actor.weight_decay=100"),
        ({}, {"actor.betas": [0.9995, 0.9995]}, None, "actor.betas"),
        ({}, {"model.lora.rank": 8, "model.lora.alpha": 0.02}, None, "model.lora.alpha=0.02"),
        ({}, {"model.dtype": "bfloat16"}, {"actor/lr": 0.01}, "model.dtype=bfloat16"),
    ],
)  # fmt: skip
def test_a_setting_of_the_optimizer_is_harmful_by_arithmetic(changes, recipe, harmless, key):
    found = names(record(changes, recipe=recipe, accuracy=(0.3, 0.31)))
    assert found["optimizer_setting_is_harmful"].what.startswith(key)
    if harmless is not None:
        recipe = {**recipe, "actor.lr": 2e-4} if "actor.lr" in recipe else recipe
        other = record({**changes, **harmless}, recipe=recipe, accuracy=(0.3, 0.6))
        assert "optimizer_setting_is_harmful" not in names(other)


@pytest.mark.parametrize("name", CASES)
def test_each_rule_fires_where_it_should_and_not_where_it_should_not(name):
    bad, good = CASES[name]
    found = names(bad)[name]
    assert found.severity in ("problem", "warning", "note")
    assert found.what
    assert found.advice
    assert found.evidence
    assert any(c.isdigit() for c in found.what)  # the numbers it rests on
    assert name not in names(good)


@pytest.mark.parametrize(
    ("changes", "recipe", "says"),
    [
        ({**STILL, "actor/lr": 1e-9}, {"actor.lr": 1e-9}, "actor.lr=1e-09 (default 0.0002)"),
        (STILL, {"actor.max_grad_norm": 1e-6}, "actor.max_grad_norm=1e-06 (default 1)"),
        (STILL, {"actor.eps": 1.0}, "actor.eps=1 (default 1e-06)"),
        (STILL, {"model.dtype": "bfloat16"}, "model.dtype=bfloat16 (default float32)"),
        ({**STILL, "actor/grad_norm": 0.0, "actor/pull_corr": 0.0}, {}, "it is exactly 0"),
        ({**STILL, "actor/grad_norm": 1e-4}, {"model.lora.rank": 1, "model.lora.alpha": 1e-3},
         "model.lora.alpha=0.001"),
        (STILL, {"actor.max_grad_norm": 1e-3, "actor.eps": 1e-3},
         "actor.max_grad_norm=0.001 (default 1)"),
        ({"critic/lr": 1e-6, **LEANS}, {"critic.lr": 1e-6}, "critic.lr=1e-06 (default 0.001)"),
        ({**STILL, "actor/lr": 1e-8}, {"actor.lr_warmup": 10**6}, "actor.lr_warmup=1000000"),
        ({"actor/ppo_kl": 0.5}, {"actor.lr": 0.02}, "actor.lr=0.02 (default 0.0002): updates are"),
        ({"actor/ppo_kl": 0.5}, {"train.epochs": 30}, "train.epochs=30 (default 1)"),
        ({"actor/ppo_kl": 0.5}, {"train.minibatches": 64}, "train.minibatches=64 (default 4)"),
        ({**FLAT, "actor/kl_coef": 5.0, "actor/ref_kl": 1e-3}, {"kl.coef": 5.0, "kl.place": "loss"},
         "kl.coef=5 (default 0.01)"),
        ({**FLAT, "actor/kl_coef": lambda x: 0.01 + 5 * x, "actor/ref_kl": 1e-3},
         {"kl.controller": "adaptive", "kl.target": 1e-4}, "kl.target=0.0001, which"),
        ({"score/right_corr": -1.0}, {"rewards.verifier.weight": -1.0},
         "favors wrong answers (rewards.verifier.weight=-1)"),
        ({"sampler/log_prob_gap": lambda x: 0.3 * x**2}, {}, "the sampler uses old weights"),
        ({"sampler/log_prob_gap": 0.3}, {"rollout.top_p": 0.5}, "rollout.top_p=0.5 truncate"),
        ({"critic/lr": 0.0, **LEANS}, {"critic.lr": 0.0}, "critic.lr=0 (default 0.001)"),
        (LEANS, {"critic.weight_decay": 500.0}, "critic.weight_decay=500"),
        (LEANS, {"critic.max_grad_norm": 1e-7}, "critic.max_grad_norm=1e-07"),
    ],
)  # fmt: skip
def test_the_first_finding_names_the_key_and_its_value(changes, recipe, says):
    findings = examine(record(changes, recipe=recipe, accuracy=(0.3, 0.31)))[0]
    assert says in findings[0].what
    assert findings[0].severity != "note"


HARM = ("Raise actor.lr", "Turn the sign", "Raise kl.coef", "lam", "More samples")


@pytest.mark.parametrize(
    ("changes", "recipe", "says"),
    [
        # A gradient that is exactly 0.
        ({**STILL, "actor/grad_norm": 0.0, "actor/pull_corr": 0.0}, {}, "exactly 0"),
        # A reward that is mostly noise.
        (
            {**FLAT, "score/std": 5.0, "score/noise": 4.6, "score/right_corr": 0.07},
            {},
            "differently",
        ),
        # The verdict of another answer: right ones are not paid, few others are.
        ({**FALLS, "score/right_corr": -0.24}, {}, "favors wrong answers"),
        # All rows are drawn by the same random numbers.
        ({**FLAT, "group/no_signal": 1.0, "group/distinct": 0.25}, {}, "copies"),
        # The adapter counts for 500 times itself, at the recipe's own rate.
        ({"actor/ppo_kl": 0.5}, {"model.lora.rank": 4, "model.lora.alpha": 4e3}, "lora.alpha=4000"),
        ({"actor/ppo_kl": 0.5}, {}, "unknown"),
        # A critic that no gradient reaches.
        ({**LEANS, "critic/grad_norm": 0.0}, {}, "exactly 0"),
        # The same where the critic's values matter little and the run learns all the same.
        ({"critic/grad_norm": 0.0, "critic/vf_explained_var": 0.0}, {}, ".detach()"),
        # No response ever ends.
        ({"response/truncated": 1.0}, {}, "end-of-sequence"),
        # Flat, with settings of the update that are not the recipe's.
        (FLAT, {"actor.betas": 0.99, "kl.coef": 0.09, "recipe": "ppo_gae"}, "kl.coef=0.09"),
        (FLAT, {"actor.lr": 4e-4}, "unknown"),
    ],
)
def test_a_cause_that_no_rate_mends_gets_no_harmful_remedy(changes, recipe, says):
    findings = examine(record(changes, recipe=recipe, accuracy=(0.3, 0.31)))[0]
    assert says in findings[0].what
    assert findings[0].severity != "note"
    assert not any(word in f.advice for f in findings for word in HARM)


def test_the_rate_is_raised_where_the_signal_is_there_and_the_policy_near_its_start():
    near = {**FLAT, "actor/ref_kl": 3e-3}
    slow = record(near, accuracy=(0.3, 0.31))
    assert "Raise actor.lr" in names(slow)["reward_flat"].advice
    for lost in ("score/right_corr", "raw_advantages/score_corr", "actor/pull_corr"):
        misled = names(record({**near, lost: 0.3}, accuracy=(0.3, 0.31)))
        assert not any("Raise actor.lr" in finding.advice for finding in misled.values())


def test_a_limit_that_ceased_to_bind_is_not_to_blame_for_a_fall():
    """Cut at first; risen to .906, fallen to .734 on 22 prompts; entropy 1.9 to 0.09."""
    changes = {
        "reward/mean": [min(0.95, 0.02 + 0.06 * i) for i in range(N)],
        "response/truncated": [max(0.0, 0.93 - 0.07 * i) for i in range(N)],
        "actor/entropy": lambda x: 1.9 * 0.05**x,
        "response/right": [min(0.95, 0.02 + 0.06 * i) for i in range(N)],
    }
    run = record(changes, recipe={"kl.coef": 0.0, "actor.lr": 5e-4, "recipe": "grpo"})
    held = [(0.0, 0.062, 0.0, 0.15), (0.906, 0.953, 0.7, 0.97), (0.734, 0.766, 0.52, 0.87)]
    run = Record(list(run.steps), [
        {"step": 15 * i, "eval/accuracy": a, "eval/greedy": g, "eval/accuracy_low": low,
         "eval/accuracy_high": high} for i, (a, g, low, high) in enumerate(held)
    ], run.recipe, run.summary)  # fmt: skip
    findings = [f for f in examine(run)[0] if f.severity != "note"]
    assert findings[0].rule in ("held_out_score_falls", "training_and_held_out_differ")
    fall = next(f for f in findings if f.rule == "held_out_score_falls")
    assert "0.906 at step 15" in fall.what
    assert "0.734" in fall.what
    assert "entropy went from" in fall.what
    assert "length_limit_too_short" not in names(run)


def test_of_training_and_held_out_prompts_the_worse_are_named():
    fast = {"response/right": lambda x: 0.4 + 0.5 * min(1, 4 * x)}
    learnt = record(fast, accuracy=(0.4, 0.5, 0.4))
    assert "memorizes" in names(learnt)["training_and_held_out_differ"].what
    mislabelled = record({"response/right": lambda x: 0.2 + 0.1 * x}, accuracy=(0.3, 0.6, 0.8))
    assert "labels" in names(mislabelled)["training_and_held_out_differ"].what
    other = record({"response/right": 0.9}, accuracy=(0.4, 0.5), recipe={"eval.temperature": 0.0})
    assert "training_and_held_out_differ" not in names(other)  # not sampled alike


def test_a_teachers_signal_need_not_follow_the_score():
    taught = {"raw_advantages/score_corr": 0.0}
    assert "advantages_do_not_follow_scores" in names(record(taught))
    with_teacher = record({**taught, "actor/teacher_kl": 0.3})
    assert "advantages_do_not_follow_scores" not in names(with_teacher)


def test_a_teacher_that_agrees_has_nothing_to_teach():
    run = record({"actor/teacher_kl": 1e-3, **FLAT}, accuracy=(0.3, 0.3))
    assert "agrees with the policy" in names(run)["teacher_has_no_effect"].what


def test_a_cut_answer_is_a_fault_where_scores_are_yes_or_no():
    cut = {**VERDICT, "response/truncated": 1.0, "reward/mean": 0.3}
    for rows in (1.0, 64 / 63):  # by rlzoo's variance and by TRL's
        run = record({**cut, "score/std": (0.21 * rows) ** 0.5}, **OPEN)
        assert "length_limit_too_short" in names(run)


def test_a_ratio_to_another_sampler_is_meant_to_differ_from_1():
    ratio = {"rollout.old_log_probs": "sampled"}
    off = {"actor/first_ratio_gap": 0.2, "sampler/log_prob_gap": 0.2}
    both = {"ratio_not_one_at_first", "sampler_and_policy_disagree"}
    assert not both & set(names(record(off, recipe=ratio)))
    assert both & set(names(record(off)))
    alone = {"actor/first_ratio_gap": 0.2, "sampler/log_prob_gap": 0.0}
    assert "ratio_not_one_at_first" in names(record(alone, recipe=ratio))


@pytest.mark.parametrize(
    ("metric", "at", "says"),
    [("actor/pg_loss", (1, 2, 18), "float16"), ("reward/mean", (4,), "reward returns")],
)
def test_a_remedy_for_nan_is_about_what_is_not_finite(metric, at, says):
    values = [float("nan") if i + 1 in at else 0.1 for i in range(N)]
    found = names(record({metric: values}))["not_finite"]
    assert found.evidence["steps"] == list(at)
    assert says in found.advice


@pytest.mark.parametrize(
    ("kl", "clipped", "reward", "accuses"),
    [
        (0.045, 0.02, FALLS["reward/mean"], False),  # as in runs that learn: something else falls
        (0.08, 0.05, 0.3, False),
        (0.06, 0.2, FALLS["reward/mean"], True),
        (0.06, 0.02, lambda x: 0.2 + 0.6 * x * (x < 0.6), True),  # rose and fell
        (0.15, 0.04, FALLS["reward/mean"], True),
        (0.06, 0.2, HEALTHY["reward/mean"], False),
    ],
)
def test_no_learning_by_itself_does_not_make_an_update_too_large(kl, clipped, reward, accuses):
    changes = {"actor/ppo_kl": kl, "actor/pg_clipfrac": clipped, "reward/mean": reward}
    found = names(record(changes, recipe={"actor.lr": 7e-4}, accuracy=(0.3, 0.29)))
    assert ("update_too_large" in found) == accuses


def test_solved_groups_are_a_note_not_a_problem():
    run = record({"group/no_signal": 0.95}, without=["critic/vf_loss"], accuracy=(0.3, 0.99))
    assert names(run)["no_signal_in_groups"].severity == "note"


def test_short_runs_and_runs_without_a_metric_are_not_judged():
    run = record(n=4, without=["critic/vf_explained_var"])
    findings, left_out = examine(run)
    assert {"reward_flat", "kl_exploding", "critic_worse_than_a_constant"} <= set(left_out)
    assert [f for f in findings if f.severity != "note"] == []
    assert examine(Record([]))[0] == []


# ---------------------------------------------------------------- folders


@pytest.fixture(scope="module")
def healthy(zoo, tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "healthy"
    words = ["model=nano", "task=key_door", "rollout.prompts=32", "train.steps=12",
             "eval.samples=64", "eval.every=0", "device=cpu", "checkpoint.every=0",
             f"run.dir={folder}"]  # fmt: skip
    rlzoo.run("ppo_gae", words, zoo=zoo)
    return folder


def ask(capsys, path, *words):
    return main(["doctor", str(path), *words]), capsys.readouterr().out


@pytest.mark.process
def test_a_healthy_run_yields_no_alarm(healthy, capsys):
    status, out = ask(capsys, healthy, "--json")
    document = json.loads(out)
    assert status == 0
    assert document["finished"]
    assert document["folder"] == []
    assert document["not_judged"] == []
    assert [f for f in document["findings"] if f["severity"] != "note"] == []
    assert "no fault found" in ask(capsys, healthy)[1]


def copy_of(healthy, path, *, lines=None, summary=True):
    path.mkdir()
    (path / "recipe.yaml").write_text((healthy / "recipe.yaml").read_text())
    text = (healthy / "metrics.jsonl").read_text().splitlines(keepends=True)
    (path / "metrics.jsonl").write_text("".join(text if lines is None else lines(text)))
    if summary:
        (path / "summary.json").write_text((healthy / "summary.json").read_text())
    return path


def test_findings_are_shown_and_the_exit_is_0(healthy, tmp_path, capsys):
    def poison(lines):
        return [line.replace('"train/skipped": 0.0', '"train/skipped": 2.0') for line in lines]

    status, out = ask(capsys, copy_of(healthy, tmp_path / "a", lines=poison))
    assert status == 0
    assert "problem: updates skipped" in out
    assert "24 updates were skipped" in " ".join(out.split())
    assert "try" in out


def test_unfinished_and_half_written_folders_are_named(healthy, tmp_path, capsys):
    cut = copy_of(healthy, tmp_path / "cut", summary=False,
                  lines=lambda t: [*t[:5], t[5][:40]])  # fmt: skip
    out = " ".join(ask(capsys, cut)[1].split())
    assert "not finished: step 4 of 12" in out
    assert "rlzoo resume" in out
    assert "line 6 cannot be read" in out
    (cut / "summary.json").write_text("{")
    assert "summary.jsoncannotberead" in "".join(ask(capsys, cut)[1].split())
    (cut / "metrics.jsonl").write_bytes(b"\xff\xfe")
    assert "metrics.jsonl: line 1 cannot be read" in ask(capsys, cut)[1]
    (cut / "metrics.jsonl").unlink()
    assert "No step has finished yet" in ask(capsys, cut)[1]
    (cut / "recipe.yaml").write_text("a: [")
    assert "not valid YAML" in ask(capsys, cut)[1]
    (tmp_path / "empty").mkdir()
    with pytest.raises(RlzooError, match=r"empty is not a run folder"):
        rlzoo.doctor(tmp_path / "empty")


def test_a_critic_without_error_is_not_cut_off():
    run = record({"critic/grad_norm": 0.0, "critic/vf_loss": 0.0})
    assert "critic_does_not_learn" not in names(run)


def test_a_policy_that_the_first_update_breaks_is_not_taken_for_other_data():
    rate = {"actor.lr": 6e-3, "rollout.prompts": 64}
    broken = record(
        {"response/right": [0.35] + [0.03] * (N - 1)}, accuracy=(0.39, 0.02), recipe=rate
    )
    other = record({"response/right": [0.03] * N}, accuracy=(0.39, 0.02), recipe=rate)
    assert "data_differ_before_training" not in names(broken)
    assert "data_differ_before_training" in names(other)


def test_a_policy_that_went_far_and_came_half_back_has_gone_far():
    far = [0.0] + [3.0] * (N // 2) + [0.9] * (N - 1 - N // 2)
    lost = {"actor/ref_kl": far, "reward/mean": lambda x: 0.4 - 0.4 * x}

    def all_of(changes):
        found = names(record(changes, accuracy=(0.4, 0.02))).values()
        return {name for f in found for name in (f.rule, *f.so_too)}

    assert "kl_exploding" in all_of(lost)
    assert "kl_exploding" not in all_of({**lost, "actor/ref_kl": [x / 4 for x in far]})


def test_advantages_of_which_none_is_positive_have_too_large_a_baseline():
    best = {"advantages/mean": -0.15, "advantages/std": 0.4, "advantages/max": 0.0}
    assert "not one is positive" in names(record(best))["advantages_not_centred"].what
    assert "advantages_not_centred" not in names(record({**best, "advantages/max": 0.6}))


def test_a_loss_that_follows_only_at_the_first_step_refers_to_another_policy():
    stale = names(record({"actor/pull_corr": [0.99] + [0.2] * (N - 1)}))
    assert "the policy that sampled" in stale["loss_does_not_follow_advantages"].what
    assert "loss_does_not_follow_advantages" not in names(record({"actor/pull_corr": 0.9}))


def test_without_a_critic_advantages_follow_scores_closely():
    values = {"raw_advantages/score_corr": 0.3}
    without = record(values, without=["values/mean"])
    assert "advantages_do_not_follow_scores" in names(without)
    assert "advantages_do_not_follow_scores" not in names(record({**values, "values/mean": 0.5}))


def test_an_evaluation_at_another_temperature_is_compared_at_the_end_too():
    right = {"response/right": lambda x: 0.2 + 0.6 * x}
    hot = record(right, accuracy=(0.18, 0.35), recipe={"eval.temperature": 2.5})
    assert "At the end" in names(hot)["evaluation_samples_differently"].what
    warm = record(right, accuracy=(0.18, 0.75), recipe={"eval.temperature": 1.1})
    assert "evaluation_samples_differently" not in names(warm)


def test_a_bonus_that_keeps_a_learning_policy_random_is_too_strong():
    kept = {"actor/entropy": 0.6}
    strong = record(kept, accuracy=(0.2, 0.5), recipe={"actor.entropy_coef": 0.3})
    assert names(strong)["entropy_bonus_too_strong"].severity == "warning"
    weak = record(kept, accuracy=(0.2, 0.5), recipe={"actor.entropy_coef": 0.01})
    assert "entropy_bonus_too_strong" not in names(weak)


def test_estimators_that_compare_with_no_group_are_those_of_the_zoo(zoo):
    without = {
        n
        for n, c in zoo.estimators.items()
        if not ({"group_ids", "values"} & {*c.needs} or c.parts)
    }
    assert without == {*symptoms.WITHOUT_GROUPS}

    def silent(**recipe):
        lost = {"group/no_signal": 0.8}
        return record(lost, without=["critic/vf_loss"], accuracy=(0.3, 0.4), recipe=recipe)

    assert "no_signal_in_groups" in names(silent())
    greedy = silent(**{"estimator.name": "remax"})
    assert "no_signal_in_groups" not in names(greedy)


def test_a_fast_rise_between_two_evaluations_is_no_difference_of_data():
    late_rise = {"response/right": [0.0] * 20 + [0.1 * i for i in range(1, 8)] + [0.7] * 3}
    assert "training_and_held_out_differ" not in names(record(late_rise, accuracy=(0.0, 0.02, 0.8)))
    wrong = {"response/right": [0.05] * N}
    (cause,) = names(record(wrong, accuracy=(0.3, 0.35, 0.4))).values()
    assert "training_and_held_out_differ" in cause.so_too


def test_a_sampler_that_replaces_groups_says_nothing_about_the_data():
    more = {"response/right": 0.45}
    assert "data_differ_before_training" in names(record(more, accuracy=(0.1, 0.6)))
    kept = record(more, accuracy=(0.1, 0.6), recipe={"sampler.name": "dynamic"})
    assert "data_differ_before_training" not in names(kept)


def test_a_distance_is_on_the_options_own_scale():
    from rlzoo_lab.doctor.suspects import _apart

    assert _apart(0.5, 1.0) > _apart(0.9, 1.0) > 1
    assert _apart(1.0, 1.0) == 0
    assert _apart(0.9, 0.95) < 1
    assert _apart(0.9999, 0.999) > 1  # a beta's distance from 1
    assert _apart([0.9, 0.9999], [0.9, 0.999]) == _apart(0.9999, 0.999)
    assert _apart(5.0, 0.0) > _apart(0.5, 0.0) > 1
    assert _apart(2e-4, 3e-4) < 1 < _apart(2e-4, 2e-3) < _apart(2e-4, -2e-4)


def test_suspects_are_ordered_by_distance_and_by_the_metric_that_they_control():
    from rlzoo_lab.doctor.suspects import listed, suspects

    odd = {"kl.coef": 0.2, "actor.eps": 1e-4, "estimator.lam": 0.95, "actor.lr": 2e-4}
    usual = [s.key for s in suspects(record(recipe=odd)) if s.distance > 1]
    assert usual[0] == "actor.eps"
    held = record({"actor/ref_kl": 1e-4}, recipe=odd)  # so the KL's coefficient matters more
    assert listed(held)[0].startswith("kl.coef=0.2 (ppo_gae: 0.01)")
    assert {w for s in suspects(held) for w in s.words} >= {"kl.coef=0.01", "actor.eps=1e-06"}
    assert suspects(record(recipe={"recipe": "unheard of"})) == []


SAMPLES = [(f"{a}+{b}=", str(a + b), str(a + b + 10 * (i % 2))) for i, (a, b) in enumerate(
    (a, b) for a in range(10, 30) for b in (13, 26))]  # fmt: skip


def test_groups_without_signal_are_a_note_where_the_run_learns():
    from rlzoo_lab.doctor.symptoms import no_signal_in_groups

    bare = {"without": ("critic/vf_loss",), "recipe": {"estimator.name": "grpo"}}
    flat = record({"group/no_signal": 0.8, "reward/mean": 0.3}, accuracy=(0.3, 0.3), **bare)
    rising = record({"group/no_signal": 0.8}, **bare)
    assert no_signal_in_groups(flat).severity == "problem"
    assert no_signal_in_groups(rising).severity == "note"
