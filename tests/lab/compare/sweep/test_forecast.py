"""What a sweep says before its first run: too few seeds, and rows that are measured differently."""

import json

import pytest

from rlzoo_lab import stats
from rlzoo_lab.compare.sweep.folder import check_folder
from rlzoo_lab.compare.sweep.forecast import forecast
from rlzoo_lab.compare.sweep.plan import plan_sweep

ROWS = ["recipe=ppo_gae", "estimator.lam=0,0.5,1"]


def test_too_few_seeds_are_said_before(zoo, tmp_path):
    (one,) = forecast(plan_sweep(ROWS, zoo), False)
    assert "will be inconclusive: a single seed cannot establish any difference" in one
    (three,) = forecast(plan_sweep([*ROWS, "seed=0..2"], zoo), False)
    least = stats.detectable(1.0, 3, 3)
    assert (
        f"3 seeds detect a difference only if it is at least {least:.1f} times the spread" in three
    )
    assert "4 show 2.6 times, 5 show 2.0 times, 8 show 1.3 times (seed=0..3" in three
    assert forecast(plan_sweep([*ROWS, "seed=0..3"], zoo), False) == []
    assert forecast(plan_sweep(["recipe=ppo_gae", "seed=0,1"], zoo), False) == []  # one row
    # seeds that a sweep has already count
    grown = plan_sweep([*ROWS, "seed=3"], zoo, str(tmp_path))
    rows = [
        {"label": r.label, "runs": [f"{r.slug}--seed{i}" for i in range(3)]} for r in grown.rows
    ]
    (tmp_path / "sweep.json").write_text(json.dumps({"rows": rows, "keys": []}))
    assert forecast(grown, False) == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["rollout.max_new_tokens=8,16"], "(eval.max_new_tokens: 8, 16); eval.max_new_tokens=16"),
        (["model=tiny,nano"], "not be on one scale (model: tiny, nano)"),
        (["task=seasoning", "rewards.verifier.weight=1,2"], "(rewards.verifier.weight: 1, 2)"),
        (["rollout.temperature=0.5,1"], None),
        (["rollout.max_new_tokens=8,16", "eval.max_new_tokens=16"], None),
    ],
)
def test_rows_that_are_measured_differently_are_said_before(zoo, words, said):
    found = forecast(plan_sweep(["recipe=ppo_gae", "seed=0..7", *words], zoo), False)
    assert [said in line for line in found] == ([True] if said else [])


def test_a_sweep_from_before_the_keys_of_evaluations_goes_on(zoo, tmp_path):
    sweep = plan_sweep([*ROWS, "seed=0..3"], zoo, str(tmp_path))
    (tmp_path / "sweep.json").write_text(json.dumps({"rows": [], "keys": []}))
    job = sweep.jobs[0]
    job.path.mkdir()
    (job.path / "metrics.jsonl").write_text('{"step": 1}\n')
    old = [line for line in job.recipe.to_yaml().splitlines()
           if not line.startswith(("  temperature: 1.0", "  top_"))]  # fmt: skip
    text = "\n".join(old).replace(
        "rollout:", "rollout:\n  temperature: 1.0\n  top_k: 0\n  top_p: 1.0"
    )
    (job.path / "recipe.yaml").write_text(text.replace("  max_new_tokens: null\n", ""))
    check_folder(sweep)
    (job.path / "recipe.yaml").write_text(text.replace("temperature: 1.0", "temperature: 0.5"))
    with pytest.raises(Exception, match="is 0.5 there but 1.0 now"):
        check_folder(sweep)
