"""Each rule on metrics that trigger it and on metrics that do not; no alarm on a healthy run."""

import argparse
import json

import pytest

import rlzoo
from helpers.worlds import one_thread
from rlzoo import RlzooError
from rlzoo.runs.record import Record
from rlzoo.tools.doctor import command as doctor
from rlzoo.tools.doctor.command import examine
from rlzoo.tools.doctor.rules import RULES, SEVERITIES
from rlzoo.tools.verb import perform

threads = pytest.fixture(scope="module", autouse=True)(one_thread)

N = 30
RECIPE = {
    "kl.coef": 0.01, "actor.lr": 1e-3, "actor.max_grad_norm": 1.0, "critic.max_grad_norm": 1.0,
    "rollout.samples": 4, "rollout.max_new_tokens": 8, "rollout.top_k": 0, "rollout.top_p": 1.0,
    "train.epochs": 1, "train.minibatches": 4, "train.critic_warmup": 0,
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
    "actor/lr": 1e-3,
    "critic/grad_norm": 1.2,
    "critic/vf_loss": 0.1,
    "critic/vf_explained_var": lambda x: 0.5 * x - 0.05,
    "sampler/log_prob_gap": 0.0,
    "response/truncated": lambda x: 0.05 * x,
    "response_length/mean": 5.0,
    "raw_advantages/std": 0.4,
    "train/skipped": 0.0,
}


def record(changes=None, *, without=(), recipe=None, accuracy=(0.3, 0.6), n=N):
    """A made-up run; `changes`: metric -> number, function of the share, or list."""
    metrics = {k: v for k, v in {**HEALTHY, **(changes or {})}.items() if k not in without}

    def at(value, i):
        noise = 1e-3 * (-1) ** i
        if isinstance(value, list):
            return value[i]
        return value(i / (n - 1)) + noise if callable(value) else value

    steps = [{"step": i + 1, **{k: at(v, i) for k, v in metrics.items()}} for i in range(n)]
    evaluations = [
        {"step": i * n, "eval/accuracy": a, "eval/accuracy_low": a - 0.03,
         "eval/accuracy_high": a + 0.03}
        for i, a in enumerate(accuracy)
    ]  # fmt: skip
    return Record(steps, evaluations, {**RECIPE, **(recipe or {})}, {"steps": n})


def names(run):
    return {f.rule: f for f in examine(run)[0]}


def test_a_healthy_record_has_no_finding():
    assert names(record()) == {}
    assert examine(record())[1] == []


FLAT = {"reward/mean": [0.3 + 0.02 * (-1) ** i for i in range(N)]}
CASES = {  # rule -> (triggers, does not)
    "not_finite": (
        record({"actor/pg_loss": [0.1] * 7 + [float("nan")] + [0.1] * (N - 8)}),
        record(),
    ),
    "updates_skipped": (
        record({"train/skipped": [0.0] * 9 + [4.0] + [0.0] * (N - 10)}),
        record({"train/skipped": 0.0}),
    ),
    "actor_not_trained": (
        record(without=[k for k in HEALTHY if k.startswith("actor/")],
               recipe={"train.critic_warmup": 50}),
        record(recipe={"train.critic_warmup": 5}),
    ),
    "learning_rate_zero": (
        record({"actor/lr": 0.0}),
        record({"actor/lr": [1e-3 * (1 - i / (N - 1)) for i in range(N)]}),
    ),
    "reward_constant": (
        record({"score/std": 0.0, "reward/mean": 0.0}, accuracy=(0.0, 0.0)),
        record({"score/std": [0.4] * 20 + [0.0] * 10}, accuracy=(0.3, 1.0)),
    ),
    "no_signal_in_groups": (
        record({"group/no_signal": 0.9}, without=["critic/vf_loss"]),
        record({"group/no_signal": 0.9}),  # a critic needs no group
    ),
    "reward_flat": (record(FLAT, accuracy=(0.3, 0.31)), record(FLAT, accuracy=(0.3, 0.6))),
    "reward_falling": (
        record({"reward/mean": lambda x: 0.6 - 0.4 * x}, accuracy=(0.3, 0.31)),
        record(FLAT),
    ),
    "held_out_falls": (record(accuracy=(0.3, 0.7, 0.5)), record(accuracy=(0.3, 0.7, 0.66))),
    "kl_exploding": (
        record({"actor/ref_kl": lambda x: 2 * x**3}),
        record({"actor/ref_kl": lambda x: 0.5 * x}),
    ),
    "entropy_collapse": (
        record({"actor/entropy": lambda x: 1.0 * 0.001**x}),
        record({"actor/entropy": lambda x: 1.0 * 0.001**x}, accuracy=(0.3, 0.98)),
    ),
    "critic_worse_than_a_constant": (
        record({"critic/vf_explained_var": -0.4}),
        record({"critic/vf_explained_var": lambda x: -0.6 + 0.6 * min(1, 2 * x)}),
    ),
    "sampler_and_policy_disagree": (
        record({"sampler/log_prob_gap": 0.2}, recipe={"rollout.top_k": 5}),
        record({"sampler/log_prob_gap": 0.2}, recipe={"correction.name": "any"}),
    ),
    "ratio_not_one_at_first": (
        record({"actor/ratio_mean": 1.01, "actor/ppo_kl": 0.001},
               recipe={"train.minibatches": 1}),
        record({"actor/ratio_mean": 1.01, "actor/ppo_kl": 0.001}),  # later mini-batches may
    ),
    "update_too_large": (
        record({"actor/ppo_kl": 0.3}),
        record({"actor/pg_clipfrac": 0.2, "actor/ppo_kl": 0.02}),
    ),
    "truncation_rising": (
        record({"response/truncated": lambda x: 0.4 * x}),
        record({"response/truncated": 0.3}),
    ),
    "advantages_vanish": (record({"raw_advantages/std": 0.0}), record()),
    "actor_gradient_always_clipped": (
        record({"actor/grad_norm": 40.0}),
        record({"actor/grad_norm": lambda x: 40.0 if x < 0.5 else 0.5}),
    ),
    "critic_gradient_always_clipped": (
        record({"critic/grad_norm": 40.0}),
        record({"critic/grad_norm": 40.0}, recipe={"critic.max_grad_norm": None}),
    ),
    "loss_near_zero": (
        record({"actor/pg_loss": 1e-4}),
        record({"actor/pg_loss": 1e-4, **FLAT}),  # a flat reward is nothing to be at ease about
    ),
}  # fmt: skip


def test_every_rule_has_its_case():
    assert {r.name for r in RULES} == set(CASES)


@pytest.mark.parametrize("name", CASES)
def test_each_rule_fires_where_it_should_and_not_where_it_should_not(name):
    bad, good = CASES[name]
    found = names(bad)[name]
    assert found.severity in SEVERITIES
    assert found.what
    assert found.advice
    assert found.evidence
    assert any(c.isdigit() for c in found.what)  # the numbers it rests on
    assert name not in names(good)


def test_a_ratio_far_off_is_seen_with_many_updates_too():
    found = names(record({"actor/ratio_mean": 1.2, "actor/ppo_kl": 0.01}))
    assert "ratio_not_one_at_first" in found


def test_solved_groups_are_a_note_not_a_problem():
    run = record({"group/no_signal": 0.95}, without=["critic/vf_loss"], accuracy=(0.3, 0.99))
    assert names(run)["no_signal_in_groups"].severity == "note"


def test_short_runs_and_runs_without_a_metric_are_not_judged():
    run = record(n=4, without=["critic/vf_explained_var"])
    findings, left_out = examine(run)
    assert {"reward_flat", "kl_exploding", "critic_worse_than_a_constant"} <= set(left_out)
    assert [f for f in findings if f.severity != "note"] == []
    assert examine(Record([]))[0] == []


def test_spans_are_those_of_the_metric():
    """A critic's warm-up leaves the first steps without the actor's metrics."""
    run = record({"actor/entropy": [None] * 12 + [1.0] * 6 + [1e-3] * 12})
    assert "steps 25 to 30" in names(run)["entropy_collapse"].what


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
    parser = argparse.ArgumentParser()
    parser.add_argument("--json", action="store_true")
    doctor.add_arguments(parser)
    status = perform(doctor, parser.parse_args([str(path), *words]))
    return status, capsys.readouterr().out


def test_a_healthy_run_yields_no_alarm(healthy, capsys):
    status, out = ask(capsys, healthy, "--json")
    document = json.loads(out)
    assert status == 0
    assert document["finished"]
    assert document["folder"] == []
    assert document["not_judged"] == []
    assert [f for f in document["findings"] if f["severity"] != "note"] == []
    assert "nothing wrong found" in ask(capsys, healthy)[1]


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
    assert "summary.json cannot be read" in ask(capsys, cut)[1]
    (cut / "metrics.jsonl").write_bytes(b"\xff\xfe")
    assert "metrics.jsonl: line 1 cannot be read" in ask(capsys, cut)[1]
    (cut / "metrics.jsonl").unlink()
    assert "No step to judge yet" in ask(capsys, cut)[1]
    (cut / "recipe.yaml").write_text("a: [")
    assert "not valid YAML" in ask(capsys, cut)[1]
    (tmp_path / "empty").mkdir()
    with pytest.raises(RlzooError, match=r"empty is no run folder"):
        ask(capsys, tmp_path / "empty")
