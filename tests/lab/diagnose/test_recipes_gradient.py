"""`rlzoo diagnose` speaks of the gradient that the recipe takes."""

import pytest
from rich.console import Console

from rlzoo import RlzooError
from rlzoo.cli import parser_of
from rlzoo_lab.diagnose import exact, tables
from rlzoo_lab.view.terminal import rendered


def ask(*words):
    parser = parser_of("diagnose")
    arguments = parser.parse_intermixed_args([*words, "--vocabulary", "4", "--horizon", "3"])
    document = exact.diagnose(arguments.words, arguments)
    console = Console(width=200, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    for part in rendered(tables.blocks(document), console):
        console.print(part)
    return document["estimators"], " ".join(console.export_text().split())


def test_grpo_as_it_ships_is_not_exact():
    (row,), text = ask("recipe=grpo", "--batches", "0")
    assert row["own_cosine"] == pytest.approx(1, abs=1e-6)
    assert row["cosine"] < 0.985
    assert "seq_mean_token_mean, not whitened" in text
    (fair,), text = ask("recipe=grpo", "aggregation=token_mean", "--batches", "0")
    assert fair["cosine"] == pytest.approx(1, abs=1e-6)
    assert "token_mean, not whitened" in text


def test_whitening_is_the_missing_baseline_in_batches():
    words = ("recipe=ppo_mc", "--critic", "zero", "--batches", "64")
    (white,), text = ask(*words)
    (plain,), _ = ask(*words, "whiten=none")
    assert "whitened over the batch" in text
    gap = white["batches"]["64"]["cosine"] - plain["batches"]["64"]["cosine"]
    assert gap > 3 * plain["batches"]["64"]["cosine_se"]
    assert white["own_cosine"] == pytest.approx(plain["own_cosine"])


def test_a_discount_is_said():
    _, text = ask("recipe=ppo_mc", "estimator.gamma=0.5", "--critic", "zero", "--batches", "0")
    assert "gamma = 0.5; the truth uses gamma = 1" in text
    _, text = ask("recipe=ppo_mc", "--critic", "zero", "--batches", "0")
    assert "the truth is of gamma" not in text


@pytest.mark.parametrize(
    ("words", "plain"),
    [
        (["recipe=grpo"], True),
        (["recipe=grpo", "policy_loss=cispo"], True),
        (["recipe=grpo", "policy_loss=high_entropy"], False),
        (["recipe=real"], False),
    ],
)
def test_a_policy_loss_that_is_not_reinforce_at_ratio_1_is_named(words, plain):
    (row,), text = ask(*words, "--batches", "0")
    assert row["own_cosine"] == pytest.approx(1, abs=1e-6)
    assert (f"without policy_loss={row['policy_loss']}" in text) != plain


def test_what_the_gradient_leaves_out_is_named():
    words = ("sampler=rounded", "correction=tis", "rollout.top_p=0.9", "policy_loss=ppo_entropy")
    _, text = ask("recipe=grpo", *words, "--batches", "0")
    for word in words:
        assert word in text


@pytest.mark.parametrize(
    ("recipe", "fine"), [("bpco", True), ("reinforce_pp", True), ("grpo", False), ("tpo", False)]
)
def test_groups_of_one_are_refused_only_where_groups_are_compared(recipe, fine):
    words = ["recipe=grpo", "policy_loss=tpo", "estimator=reinforce"] if recipe == "tpo" else [
        f"recipe={recipe}"]  # fmt: skip
    words += ["rollout.samples=1", "--critic", "exact", "--batches", "0"]
    if fine:
        assert len(ask(*words)[0]) == 1
    else:
        with pytest.raises(RlzooError, match="samples"):
            ask(*words)
