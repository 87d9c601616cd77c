"""Prompts that are too long for the model are found before anything is trained."""

import json
import shutil

import pytest
import torch
from transformers import AutoModelForCausalLM

import rlzoo
from helpers.architectures import save_model
from helpers.worlds import changed
from rlzoo.errors import DataError, ModelError
from rlzoo.lm.build import build_world
from rlzoo.plugin.component import Example
from rlzoo.recipe.compose import compose
from rlzoo.recipe.plan import make_plan
from rlzoo.rollout.sample import resources
from rlzoo_lab.compare.eval.policy import evaluate_policy

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
    return build_world(make_plan(compose(["recipe=grpo", *given], zoo), zoo))


def test_they_are_dropped_and_counted(zoo, model, data):
    world = make(zoo, *words(model, data))
    assert [note for note in world.engine.notes if "longer" in note] == [
        "2 of 40 prompts longer than 56 tokens dropped, the first in row 7 (task.too_long=drop): "
        "longer than the 56 tokens that rollout.max_new_tokens leaves of the model's positions"
    ]
    left = [e.prompt for rows in world.plan.task.rows.values() for e in rows]
    assert len(left) == 38
    assert max(map(len, left)) == 56


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
        build_world(plan)
    assert str(error.value) == (
        "rollout.max_new_tokens=8 leaves 56 of the model's 64 positions for a prompt; "
        "128 of 256 train prompts of task 'addition' are longer, up to 57 tokens"
    )


def test_eval_scores_the_prompts_that_a_run_scores(zoo, model, data):
    """A run's own evaluation never sees what max_prompt drops; `rlzoo eval` did."""
    given = words(model, data, "task.max_prompt=4", "eval.samples=20", "task.test_fraction=0.5")
    _, rows = evaluate_policy(None, given, ks=[1], responses=1)
    assert max(len(row["prompt"]) for row in rows) == 4


@pytest.fixture
def tight(tmp_path):
    """(folder, words): a prompt of 8 tokens and 6 new ones are all of its 14 positions."""
    folder = save_model(tmp_path / "tight", "gpt2", n_positions=14)
    path = tmp_path / "tight.jsonl"
    rows = [{"prompt": f"{100 + i}" * 2 + "+=", "answer": str(i)} for i in range(60)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    sizes = ["rollout.max_new_tokens=6", "rollout.prompts=4", "rollout.samples=4", "eval.samples=2"]
    return folder, [*words(folder, path)[1:], *sizes]


@pytest.mark.parametrize("recipe", ["grpo", "ppo_gae", "vineppo"])
def test_all_positions_of_a_model_are_used(tight, recipe, tmp_path):
    """Branches begin within a response: a prefix that is longer than others has less room."""
    folder, more = tight
    model = AutoModelForCausalLM.from_pretrained(folder)
    table = model.transformer.wpe.weight
    model.transformer.wpe = torch.nn.Embedding(40, table.shape[1])
    model.transformer.wpe.weight.data[:14] = table.data
    model.config.n_positions = 40
    wide = shutil.copytree(folder, tmp_path / "wide")
    model.save_pretrained(wide)
    small = rlzoo.open_recipe(recipe, [f"model.path={folder}", *more])
    large = rlzoo.open_recipe(recipe, [f"model.path={wide}", *more])
    (ours, _), (theirs, _) = small.step(), large.step()
    assert (ours["prompt_mask"].sum(1) + ours["response_mask"].sum(1)).max() == 14
    assert ours.keys() == theirs.keys()
    for name, x in ours.items():
        if isinstance(x, torch.Tensor):
            torch.testing.assert_close(x, theirs[name], msg=name, atol=1e-5, rtol=1e-5)
        else:
            assert x == theirs[name]


def test_a_row_ends_where_the_positions_do(tight, zoo):
    folder, more = tight
    world = make(zoo, f"model.path={folder}", *more, "kl.coef=0")
    world = changed(world, eos_ids=[-1])  # an id that no row draws
    ids, mask = torch.full((2, 12), 7), torch.ones(2, 12)
    mask[1, :5] = 0
    drawn = resources(world, {}, ("x",), 0)["sample"](ids, mask, max_new_tokens=7)
    assert drawn["response_mask"].sum(1).tolist() == [2, 7]
    assert drawn["truncated"].all()
    with pytest.raises(ModelError, match="prompts of 7 tokens and 8 new tokens exceed"):
        world.policy.generate(ids, mask, None, 8)
