"""Recipes of 2025 and 2026, cut off and resumed: as the run that nothing befell."""

import json

import pytest
import torch
from safetensors.torch import load_file

import rlzoo
from helpers.runs import StopAt, untimed
from rlzoo.train.start import resume

pytestmark = pytest.mark.landing

PUSHED = ["train.steps=4", "actor.lr=1e-2", "checkpoint.every=1", "eval.every=0"]


def same(zoo, recipe, words, folder):
    """Whether a run that was cut after its second step ends as one that was not."""
    words = [*words, *PUSHED]
    rlzoo.run(recipe, [*words, f"run.dir={folder / 'whole'}"], zoo=zoo)
    with pytest.raises(KeyboardInterrupt):
        rlzoo.run(recipe, [*words, f"run.dir={folder / 'cut'}"], zoo=zoo, display=StopAt(3))
    resume(folder / "cut", zoo=zoo)
    assert untimed(folder / "cut") == untimed(folder / "whole")
    a, b = (load_file(next((folder / n / "model").glob("*.safetensors"))) for n in ("cut", "whole"))
    assert all(torch.equal(a[k], b[k]) for k in b)


@pytest.mark.parametrize("recipe", ["vimpo", "sdpo", "a_star_po", "dapo"])
def test_with_stale_samples(zoo, words, recipe, tmp_path):
    same(zoo, recipe, [*words, "rollout.staleness=2", "correction=tis"], tmp_path)


def test_with_adapters_and_stale_samples(zoo, words, tmp_path):
    same(zoo, "grpo", [*words, "rollout.staleness=2", "correction=icepop", "model.lora.rank=2"],
         tmp_path)  # fmt: skip


def test_with_a_teacher_of_each_domain(zoo, words, tmp_path):
    path = tmp_path / "rows.jsonl"
    rows = [(f"{i}+{i}=", "sum") for i in range(20)] + [(f"{i}{i}>", "word") for i in range(20)]
    path.write_text("\n".join(json.dumps({"prompt": p, "answer": "1", "domain": d})
                              for p, d in rows))  # fmt: skip
    own = next(w.partition("=")[2] for w in words if w.startswith("model.path="))
    words = [w for w in words if not w.startswith("task=")]
    same(zoo, "mopd", [*words, "task=dataset", f"task.path={path}", "task.domain=domain",
                       "task.test_fraction=0.2", f"teacher.domains={{sum: {own}, word: {own}}}",
                       "rollout.staleness=1"], tmp_path)  # fmt: skip
