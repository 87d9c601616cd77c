"""Bases that do not know the answer: before training greedy is mostly wrong, and no prompt of an
evaluation was in the warm start."""

import runpy

import pytest
import torch
from omegaconf import OmegaConf

import rlzoo
from helpers import ROOT
from helpers.zoo import ZOO
from rlzoo.recipe.compose import compose
from rlzoo_lab.supervised.warm_start import demonstrations

BASES = ROOT / "configs" / "base"
HONEST = [
    ("novice", "addition"),
    ("blind", "marks"),
    ("blind", "marks_long"),
    ("blind", "marks_dense"),
    ("turns", "local_search"),
]


def words(base, task):
    return [f"model={base}", f"task={task}", "device=cpu", "run.threads=1"]


@pytest.mark.parametrize(("base", "task"), HONEST)
def test_before_training_greedy_is_mostly_wrong(base, task):
    trainer = rlzoo.open_recipe("grpo", [*words(base, task), "kl.coef=0"], zoo=ZOO)
    found = trainer.evaluate(128)
    assert found["eval/greedy"] < 0.5
    assert found["eval/truncated"] < 0.1  # it knows the form


@pytest.mark.parametrize(("base", "task"), HONEST)
def test_no_held_out_prompt_is_in_the_warm_start(base, task):
    spec = OmegaConf.to_container(OmegaConf.load(BASES / f"{base}.yaml"))
    tasks = {k: ZOO.tasks[m["task"]](**m["options"]) for k, m in spec["mix"].items()}
    generator = torch.Generator().manual_seed(spec["seed"])
    seen = set()
    for _ in range(20):
        pairs = demonstrations(spec | {"batch": 256}, tasks, 0.5, generator)
        seen |= {prompt for prompt, _ in pairs}
    asked = dict(compose(["recipe=grpo", *words(base, task)], ZOO).config.task)
    made = ZOO.tasks[asked.pop("name")](**asked)
    held_out = {e.prompt for e in made.draw("test", 2000, generator)}
    assert len(seen) > 400
    assert not seen & held_out


@pytest.mark.study
@pytest.mark.parametrize("task", [task for _, task in HONEST])
def test_after_training_greedy_is_mostly_right(task):
    """The first seed of the table in docs/models.md; about ten CPU seconds each."""
    page = runpy.run_path(str(ROOT / "docs" / "studies" / "bases.py"), run_name="bases")
    words = [*page["CASES"][task].split(), *page["COMMON"]]
    recipe = "grpo" if task in ("marks", "marks_long") else "ppo_gae"  # which ended higher there
    row = page["trained"]((task, recipe, 0, words))
    assert row["greedy_before"] < 0.5
    assert row["greedy_after"] > 0.85
