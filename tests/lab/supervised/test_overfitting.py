"""`sft` reports that a model overfits where the held-out loss rose by more than chance while the
training loss fell, and not otherwise."""

import argparse
import json
import random

import pytest

from rlzoo_lab.supervised import sft
from rlzoo_lab.supervised.fit import overfits_after

FELL = [{"loss": 2.0, "epoch": 1.0}, {"loss": 1.0, "epoch": 2.0}, {"loss": 0.5, "epoch": 3.0}]
GREW = [{"loss": 2.0, "epoch": 1.0}, {"loss": 2.5, "epoch": 3.0}]


def passes(*means):
    """The held-out losses after each epoch: four rows that are apart, and rise and fall alike."""
    return [{"epoch": float(i), "held_out": [mean + x for x in (-0.4, 0.1, 0.2, 0.1)]}
            for i, mean in enumerate(means, 1)]  # fmt: skip


@pytest.mark.parametrize(
    ("logs", "last", "epoch"),
    [
        (FELL, [1.5, 2.1, 2.2, 2.1], 2.0),
        (GREW, [1.5, 2.1, 2.2, 2.1], None),  # it learns nothing at all
        (FELL, [0.6, 1.1, 1.3, 1.0], None),  # within chance
        (FELL, [0.5, 1.0, 1.1, 1.0], None),  # still falling
    ],
)
def test_only_where_one_loss_rose_and_the_other_fell(logs, last, epoch):
    assert overfits_after([*passes(1.5, 1.0, 1.6), *logs], last) == epoch
    assert overfits_after(logs, last) is None


@pytest.mark.parametrize("learnable", [False, True])
def test_random_answers_are_learnt_by_heart(tmp_path, model_dir, learnable):
    draw = random.Random(0)
    rows = [f"{draw.randrange(10)}{draw.randrange(10)}=" for _ in range(48)]
    answers = [row[0] if learnable else str(draw.randrange(10)) for row in rows]
    pairs = zip(rows, answers, strict=True)
    data = tmp_path / "rows.jsonl"
    data.write_text("".join(json.dumps({"prompt": p, "response": r}) + "\n" for p, r in pairs))
    parser = argparse.ArgumentParser()
    sft.add_arguments(parser)
    result = sft.run(parser.parse_args(
        [str(data), "--model", str(model_dir), "--out", str(tmp_path / "out"), "--batch", "8",
         "--lr", "0.01", "--epochs", "40", "--device", "cpu", "--test-fraction", "0.3"]
    ))  # fmt: skip
    after = result.document["overfits_after"]
    assert (after is None) == learnable
    assert [f"--epochs {after:g}" in line for line in result.view(None) if "overfits" in line] == (
        [] if learnable else [True]
    )
