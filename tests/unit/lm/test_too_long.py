"""Prompts that are too long for the model are found before anything is trained."""

import json

import pytest

import rlzoo
from helpers.architectures import save_model
from rlzoo.errors import DataError, ModelError
from rlzoo.lm.build import build_models
from rlzoo.plugin.component import Example
from rlzoo.recipe.compose import compose
from rlzoo.recipe.plan import make_plan
from rlzoo_lab.eval.policy import evaluate_policy

LIMIT = 8  # new tokens: of 64 positions 56 are left to a prompt
LONG = "1" * 57


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return save_model(tmp_path_factory.mktemp("short"), "llama")


@pytest.fixture
def data(tmp_path):
    rows = [{"prompt": f"{i}+{i}=", "answer": str(2 * i)} for i in range(40)]
    rows[7]["prompt"] = rows[21]["prompt"] = LONG + "="
    rows[30]["prompt"] = "2" * 56  # just fits
    path = tmp_path / "data.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def words(model, path, *more):
    return [f"model.path={model}", "device=cpu", "task=dataset", f"task.path={path}",
            f"rollout.max_new_tokens={LIMIT}", *more]  # fmt: skip


def make(zoo, *given):
    return build_models(make_plan(compose(["recipe=grpo", *given], zoo), zoo))


def test_they_are_dropped_and_counted(zoo, model, data):
    world = make(zoo, *words(model, data))
    assert [note for note in world.notes if "longer" in note] == [
        "2 of 40 prompts longer than 56 tokens dropped, the first in row 7 (task.too_long=drop): "
        "longer than the 56 tokens that rollout.max_new_tokens leaves of the model's positions"
    ]
    left = [e.prompt for rows in world.plan.task.rows.values() for e in rows]
    assert len(left) == 38
    assert max(map(len, left)) == 56


def test_tokenizing_many_prompts_reports_its_progress(zoo, model, data, monkeypatch, capsys):
    make(zoo, *words(model, data))
    assert "tokenized" not in capsys.readouterr().err
    monkeypatch.setattr("rlzoo.lm.models.PATIENCE", -1.0)
    make(zoo, *words(model, data))
    assert "30 prompts tokenized" in capsys.readouterr().err


def test_they_are_refused_where_the_key_says_so(zoo, model, data):
    with pytest.raises(DataError) as error:
        make(zoo, *words(model, data, "task.too_long=stop"))
    text = str(error.value)
    assert text.startswith("prompt 7 is longer than the 56 tokens that rollout.max_new_tokens leav")
    assert "\n" not in text


def test_they_are_cut_where_the_key_says_so(zoo, model, data):
    task = make(zoo, *words(model, data, "task.too_long=cut_start")).plan.task
    cut = [e.prompt for rows in task.rows.values() for e in rows if e.index in (7, 21)]
    assert cut == ["1" * 55 + "="] * 2


def test_the_tighter_limit_counts(zoo, model, data):
    task = make(zoo, *words(model, data, "task.max_prompt=55")).plan.task
    assert sum(map(len, task.rows.values())) == 37


def test_a_run_goes_on_to_its_end(zoo, model, data, tmp_path):
    given = words(model, data, "rollout.prompts=36", "rollout.samples=2", "train.steps=2",
                  "eval.samples=3", f"run.dir={tmp_path}/run")  # fmt: skip
    rlzoo.run("grpo", given, zoo=zoo)


def test_a_task_that_makes_such_prompts_is_refused(zoo, model, monkeypatch):
    given = ["recipe=grpo", f"model.path={model}", "device=cpu", f"rollout.max_new_tokens={LIMIT}"]
    plan = make_plan(compose(given, zoo), zoo)
    rows = [Example("1+1=", "2"), Example(LONG, "2")]
    monkeypatch.setattr(plan.task, "draw", lambda split, n, g: [rows[i % 2] for i in range(n)])
    with pytest.raises(ModelError) as error:
        build_models(plan)
    assert str(error.value) == (
        "rollout.max_new_tokens=8 leaves 56 of the model's 64 positions for a prompt; "
        "128 of 256 train prompts of task 'addition' are longer, up to 57 tokens"
    )


def test_eval_scores_the_prompts_that_a_run_scores(zoo, model, data):
    """A run's own evaluation never sees what max_prompt drops; `rlzoo eval` did."""
    given = words(model, data, "task.max_prompt=4", "eval.samples=20", "task.test_fraction=0.5")
    _, rows = evaluate_policy(None, given, ks=[1], responses=1)
    assert max(len(row["prompt"]) for row in rows) == 4
