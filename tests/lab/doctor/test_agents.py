"""Rules about agents' runs, each on a made run with its fault and on one without; and the metrics
that they read, from the files of an import."""

import json

import pytest

import rlzoo
from rlzoo.cli import main
from rlzoo_lab.data.record import Record
from rlzoo_lab.doctor import agents
from rlzoo_lab.doctor.command import findings_of
from rlzoo_lab.doctor.rules import RULES
from rlzoo_lab.imports.found import Sample
from rlzoo_lab.imports.rollouts import sample_metrics


def found(samples=(), **metrics):
    """The findings of the rules of agents, by name."""
    line = {"reward/mean": 0.4, "response/right": 0.4} | metrics
    run = Record([{"step": n} | line for n in range(1, 7)], summary={"steps": 6})
    run.__dict__["samples"] = list(samples)
    return {f.rule: f for f in findings_of(run)[0] if f.rule in CASES}


def row(score, truncated=False, response="2"):
    return {"step": 1, "prompt": "1+1=", "response": response, "score": score,
            "truncated": truncated}  # fmt: skip


PAID = [row(1.0) for _ in range(30)] + [row(0.0, True) for _ in range(30)]
REACT = "Thought: look\nAction: search\nObservation: it is 4\nAction: stop"
REAL = ("assistant: Action: search\nuser: Observation: it is 4\nassistant: 4",
        "Action: search\nuser\n<tool_response>\n4\n</tool_response>\nassistant\n4",
        "tool: found\nObservation: it is 4\nassistant: 4", "My observation: none")  # fmt: skip
CASES = {
    "rewarded_but_unfinished": (
        {"samples": [row(1.0, i < 15) for i in range(30)] + [row(0.0) for _ in range(30)]},
        {"samples": PAID},
    ),
    "reward_counts_turns": ({"reward/per_episode": 0.6}, {"reward/per_episode": 0.405}),
    "policy_writes_observations": (
        {"samples": [row(0.0, response=REACT)] * 3 + [row(0.0)] * 20},
        {"samples": [row(0.0, response=text) for text in REAL] * 5},
    ),
    "groups_of_unequal_prompts": ({"group/unequal_prompts": 0.5}, {"group/unequal_prompts": 0.0}),
}


def test_every_rule_of_agents_has_its_case():
    assert set(CASES) == {r.name for r in RULES if r.judge.__module__ == agents.__name__}


@pytest.mark.parametrize("rule", CASES)
def test_a_fault_is_found_and_its_absence_is_not(rule):
    planted, healthy = CASES[rule]
    assert set(found(**planted)) == {rule}
    assert not found(**healthy)


def test_nothing_is_found_where_nothing_is_recorded():
    assert not found()
    assert not found([{"step": 1, "prompt": "p", "response": "r", "score": 1.0}] * 40)


def made(score, *, prompt="p", response="r", **more):
    return Sample(1, prompt, response, score, **more)


def test_an_episode_of_many_turns_counts_once():
    turns = [made(0.0, episode="a") for _ in range(3)] + [made(1.0, episode="b")]
    out = sample_metrics(turns, None)
    assert (out["reward/mean"], out["reward/per_episode"]) == (0.25, 0.5)
    rows = [made(0.0, episode="a"), made(1.0, episode="b"), made(1.0, episode="c")]
    assert "reward/per_episode" not in sample_metrics(rows, None)
    assert "reward/per_episode" not in sample_metrics([made(1.0), made(0.0)], None)


def test_a_group_of_two_prompts_is_counted():
    rows = [made(1.0, group=1), made(0.0, group=1, prompt="q"), made(1.0, group=2),
            made(0.0, group=2)]  # fmt: skip
    assert sample_metrics(rows, 2)["group/unequal_prompts"] == 0.5
    assert sample_metrics(rows[2:], 2)["group/unequal_prompts"] == 0.0
    assert "group/unequal_prompts" not in sample_metrics([made(1.0), made(0.0)], 2)


def test_the_term_that_is_flat_is_named():
    """The sum is capped at 1: `right` differs within the group, and the score does not."""
    rows = [made(1.0, response=str(i), terms={"right": 1.0 + i, "form": 0.0}) for i in range(4)]
    out = sample_metrics(rows, 4)
    assert out["group/no_signal"] == out["group/no_signal/form"] == 1.0
    assert out["group/no_signal/right"] == 0.0
    (flat,) = (f for f in findings_of(Record([{"step": n} | out for n in range(1, 5)]))[0]
               if f.rule == "no_signal_in_groups")  # fmt: skip
    shares = {k: x for k, x in flat.evidence.items() if k.startswith("no_signal/")}
    assert shares == {"no_signal/form": 1.0, "no_signal/right": 0.0}
    assert "right differs" in flat.what
    out["group/no_signal/right"] = 1.0
    (flat,) = (f for f in findings_of(Record([{"step": n} | out for n in range(1, 5)]))[0]
               if f.rule == "no_signal_in_groups")  # fmt: skip
    assert "differs" not in flat.what


@pytest.mark.parametrize("turns", [3, 1])
def test_an_import_of_verl_counts_episodes(turns, tmp_path):
    """Requests whose first has `turns` rows, as verl dumps them."""
    (tmp_path / "rollouts").mkdir()
    lines = [{"step": n, "data": {"critic/score/mean": 1 / (turns + 1), "actor/lr": 1e-6}}
             for n in (1, 2, 3)]  # fmt: skip
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(x) + "\n" for x in lines))
    for step in (1, 2, 3):
        rows = [{"input": f"turn {i}", "output": "x", "score": 0.0, "request_id": "a"}
                for i in range(turns)]  # fmt: skip
        rows.append({"input": "turn 0", "output": "y", "score": 1.0, "request_id": "b"})
        text = "".join(json.dumps(r | {"gts": "2", "step": step}) + "\n" for r in rows)
        (tmp_path / "rollouts" / f"{step}.jsonl").write_text(text)
    assert main(["import", str(tmp_path), "--out", str(tmp_path / "out")]) == 0
    rules = {f["rule"] for f in rlzoo.doctor(tmp_path / "out")["findings"]}
    assert ("reward_counts_turns" in rules) == (turns == 3)
