"""Prompts that cannot be encoded are found before training, by their row."""

import json

import pytest

from rlzoo.errors import DataError
from rlzoo.lm.build import build_world
from rlzoo.recipe.compose import compose
from rlzoo.recipe.plan import make_plan

ROWS = 400  # more than are looked at to see what a task's prompts are like


@pytest.fixture
def words(tmp_path, model_dir):
    """words(bad row, ...): a data set with these rows after 300 good ones."""

    def make(*bad):
        rows = [{"prompt": f"{i}+1=", "answer": str(i + 1)} for i in range(ROWS)]
        rows[300:300] = bad
        file = tmp_path / "data.jsonl"
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return [
            "recipe=grpo", f"model.path={model_dir}", "task=dataset", f"task.path={file}",
            "device=cpu", "rollout.max_new_tokens=4", "rollout.prompts=2",
        ]  # fmt: skip

    return make


def test_a_character_that_has_no_token_stops_at_the_start(words, zoo, golden):
    bad = {"prompt": "\u00fc+1=", "answer": "2"}
    with golden.refuses(DataError):
        build_world(make_plan(compose(words(bad), zoo), zoo))


def test_or_is_skipped_and_counted(words, zoo):
    bad = {"prompt": "\u00fc+1=", "answer": "2"}
    models = build_world(make_plan(compose([*words(bad, bad), "task.on_bad_row=skip"], zoo), zoo))
    assert f"2 of {ROWS + 2} prompts skipped, first prompt 300" in " ".join(models.engine.notes)


@pytest.mark.parametrize("key", ["prompt", "answer"])
def test_half_a_character_is_a_bad_row(words, zoo, key, golden):
    bad = {"prompt": "1+1=", "answer": "2"} | {key: "1\ud800"}
    with golden.refuses(Exception):
        make_plan(compose(words(bad), zoo), zoo)
