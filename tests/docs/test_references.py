"""docs/studies/references.py: its rows can run, its verdicts are right, its table is shown."""

import json
import re
import sys
from dataclasses import replace

import pytest
import torch
from torch.testing import assert_close

from helpers import ROOT
from helpers.scripts import script
from rlzoo.recipe.compose import compose
from rlzoo.recipe.plan import make_plan


@pytest.fixture(scope="module")
def references():
    return script("references")


@pytest.fixture(scope="module")
def kl(references):
    return sys.modules["kl_estimates"]


def test_every_row_can_run_and_seeds_that_were_tried_are_in_none(references, kl, zoo):
    for row in references.ROWS:
        plan = make_plan(compose(["recipe=grpo", *row.words], zoo), zoo)
        assert not plan.reference  # the KL is to the rollout's own policy, if there is any
    for speller in references.SPELLERS:
        words = [*kl.SPELL, "task.dataset=spell_backward", *speller.words]
        for arm in references.ARMS:
            recipe = compose(["recipe=grpo", *words, *kl.penalty(arm)], zoo)
            assert make_plan(recipe, zoo).reference == (arm != "none")
    played = [(name, seed) for name, seed, _ in references.cells()]
    assert 1 not in {seed for _, seed in played}
    arms = {(f"{p.name}-{arm}", s) for p in references.SPELLERS for arm in references.ARMS
            for s in p.seeds}  # fmt: skip
    rows = {(r.name, s) for r in references.ROWS for s in range(2, 2 + r.seeds)}
    assert set(played) == rows | arms
    assert played[0][0] == "second-dg"


def test_the_model_has_exactly_its_symbols_and_layers_as_torch_copies_them(references, tmp_path):
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder = references.made(tmp_path / "m", "ab>", 21, 3, references.relu)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    assert (len(tokenizer), tokenizer.eos_token) == (3, None)
    assert tokenizer("ba>")["input_ids"] == [1, 0, 2]
    first, second = AutoModelForCausalLM.from_pretrained(folder).model.decoder.layers
    for name, x in first.state_dict().items():
        assert torch.equal(x, second.state_dict()[name])


@pytest.mark.parametrize(
    ("values", "published", "verdict"),
    [
        ([0.30, 0.31, 0.32], (0.31, 0.01), "agrees"),
        ([0.30, 0.31, 0.32], (0.40, 0.01), "differs"),
        ([0.30, 0.31, 0.32], (0.40, 0.05), "agrees"),  # theirs is uncertain, too
        ([0.0] * 45 + [1.0] * 5, (0.12, None), "agrees"),
        ([0.0] * 45 + [1.0] * 5, (0.40, None), "differs"),
        ([0.0] * 4, (0.12, None), "undecided"),  # as likely as not, if one run of eight fails
        ([0.10, 0.50, 0.90], (0.40, None), "undecided"),
        ([0.31], (0.31, None), "undecided"),
    ],
)
def test_verdicts(references, values, published, verdict):
    assert references.interval(values, published)[1] == verdict


def test_runs_that_solve_their_task_are_counted_over_both_lengths(references):
    kept = {"tpo-H7-tpo": {"2": (0.0, 1), "3": (0.9, 1)}, "tpo-H8-tpo": {"2": (0.04, 1)}}
    assert "TPO 2 of 3, GRPO with KL 0 of 0," in references.solved(kept)


def test_a_row_has_its_errors_seeds_and_cost(references):
    (row,) = [row for row in references.ROWS if row.name == "tpo-H7-dg"]
    cells = references.line(row, {"3": (0.3, 110), "2": (0.4, 90), "4": (0.35, 0)})
    assert cells[2].startswith("0.3500 [")
    assert cells[3:5] == ["2-4", "100"]


def test_the_last_error_of_a_run_is_its_rows(references, zoo, tmp_path):
    (row,) = [row for row in references.ROWS if row.name == "second-dg"]
    few = ("train.steps=1", "rollout.prompts=2", "eval.samples=8")
    error, seconds = replace(row, words=(*row.words, *few)).play(tmp_path, 2, zoo)
    summary = json.loads((row.path(tmp_path, 2) / "summary.json").read_text())
    assert error == round(1 - summary["eval_after"], 6)
    assert seconds > 0


def test_the_page_has_the_runs_that_are_kept(references):
    page = (ROOT / "docs" / "references.md").read_text(encoding="utf-8")
    kept = json.loads(references.KEPT.read_text(encoding="utf-8"))
    for row in references.ROWS:
        if runs := kept.get(row.name):
            assert f"|{'|'.join(references.line(row, runs))}|" in page
        else:
            assert (
                f"`{row.name}` ({row.published[0]:.4g})"
                in page.partition("*Not run* (published)")[2]
            )


def test_the_readme_has_the_first_rows_of_the_page():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    page = (ROOT / "docs" / "references.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\|(.+)\|([\d.]+±[\d.]+)\|(.+ \[.+\])\|(\w+)\|$", readme, re.MULTILINE)
    shown = [tuple(x.split("|")[i] for i in (1, 2, 3, -2)) for x in page.splitlines()
             if re.match(r"\|\w.*±.*\[", x)]  # fmt: skip
    assert [(name.partition(", token")[0], *cells) for name, *cells in rows] == shown[: len(rows)]
    assert rows


def test_expected_gradients_of_kl_estimates_are_autograds(kl):
    world = kl.make_world("graded", kl.claims.TREE, seed=3)
    world = kl.claims.trained(world, 0.0, 10)
    logits = world.logits.clone().requires_grad_()
    ratio = logits.log_softmax(-1) - world.reference.log_softmax(-1)
    estimates = {"k1": ratio, "k2": ratio.square() / 2, "k3": (-ratio).exp() - 1 + ratio}
    for name, (loss, _) in kl.pulls(world).items():
        mean = (world.visits[:, None] * world.pi * estimates[name]).sum()
        (slope,) = torch.autograd.grad(mean, logits, retain_graph=True)
        assert_close(loss, slope, rtol=1e-9, atol=1e-13)
    assert_close(kl.pulls(world)["k1"][1], world.gradient(world.log_ratio))


def test_the_page_shows_the_exact_table(references):
    page = (ROOT / "docs" / "references.md").read_text(encoding="utf-8")
    assert references.exact_table() in page


def test_arms_are_compared_with_k3_in_the_loss_by_seed(references):
    runs = {
        "kl-reader-k3-loss": {"2": [0.2, 0.5, 1.0, 4.0, 9.0], "3": [0.2, 0.6, 1.0, 4.0, 9.0]},
        "kl-reader-k1-loss": {"3": [0.2, 0.9, 2.0, 4.0, 9.0], "2": [0.2, 0.7, 2.0, 4.0, 9.0]},
    }
    rows = [line.split("|")[1:-1] for line in references.runs_table(runs).splitlines()[2:]]
    assert [row[1] for row in rows] == ["`k1-loss`", "`k3-loss`"]
    half = 12.7062 * 0.05  # Student's t with one degree of freedom, differences of 0.2 and 0.3
    assert rows[0][3] == f"0.250±{half:.3f}"
    assert rows[1][3] == ""
    assert rows[0][4].startswith("2.000")


def curve(start, *errors):
    return [start, *errors, *[0] * (200 - len(errors) - start)]


def test_steps_of_the_mean_curve(references):
    first, slow = curve(5, 30, 10, 0), curve(7, 90, 40, 10)
    assert references.crossing([first]) == 6
    assert references.crossing([slow]) == 9
    assert references.crossing([first, slow]) == 9  # 0 and 40 in step 8, 0 and 10 in step 9
    assert references.crossing([first, [7, *[50] * 193]]) == 0
    half = 12.7062 * 1.5  # half the gap of 6 and 9: the jackknife's error of two runs
    for theirs, verdict in ((9, "undecided"), (29, "differs"), (400, "differs")):
        assert references.steps_to([first, slow], theirs) == (f"9±{half:.0f}", verdict)
    alike = [curve(n, 30, 0) for n in (100, 101, 102)]
    assert references.steps_to(alike, 103)[1] == "agrees"
    assert references.steps_to([slow], 9) == ("9", "undecided")
    assert references.steps_to([curve(7, *[50] * 20)], 9) == ("27", "undecided")
    assert references.steps_to([[7, *[50] * 193]], 9) == ("never", "differs")


def test_what_is_kept_of_a_dense_run(references, tmp_path):
    (row,) = [row for row in references.ROWS if row.name == "dense-2-dg"]
    rewards = (5.0, 7.9, 8.0, 7.5, 9.95)
    lines = "".join(json.dumps({"reward/mean": x}) + "\n" for x in rewards)
    (tmp_path / "metrics.jsonl").write_text(lines, encoding="utf-8")
    assert row.result(tmp_path) == [3, 200, 250, 5]
