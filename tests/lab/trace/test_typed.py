"""Typed numbers: scores, KL, texts of tokens; what does not fit is one line."""

import argparse

import pytest

from rlzoo.errors import UsageError
from rlzoo_lab.trace import command

KL = ("--scores", "0,0,1", "--kl", ".5,-.2,.3", "--values", ".3,.4,.6")


def traced(zoo, *words):
    from rlzoo.cli import _joined

    parser = argparse.ArgumentParser(allow_abbrev=False)
    command.add_arguments(parser)
    arguments, rest = parser.parse_known_args(_joined(list(words)))
    command.sort_out(arguments, rest)
    return command.trace(arguments, zoo)


def test_scores_less_kl_are_the_rewards(zoo):
    found = traced(zoo, *KL, "kl.coef=.1", "whiten=none", "--lam", "0")
    assert found.columns["scores"] == [0, 0, 1]
    assert found.columns["kl"] == pytest.approx([0.5, -0.2, 0.3])
    assert found.columns["rewards"] == pytest.approx([-0.05, 0.02, 0.97])
    assert found.credits[0].columns["advantages"] == pytest.approx([0.05, 0.22, 0.37])
    assert found.derivations[0].formula == "the score, less the KL times coef = 0.1"
    assert found.derivations[0].lines[1] == "r_1 = score_1 - coef * KL_1 = 0 - 0.1 * (-0.2) = 0.02"


def test_the_penalty_is_the_recipes_where_log_probs_are_typed(zoo):
    logs = ("--old-log-probs", "-1,-1,-1", "--ref-log-probs", "-2,-1,-1.5")
    words = ("--scores", "0,0,1", *KL[4:], *logs, "kl.coef=.1", "kl.name=k2")
    found = traced(zoo, *words)
    assert found.columns["kl"] == pytest.approx([0.5, 0, 0.125])
    assert found.columns["rewards"] == pytest.approx([-0.05, 0, 0.9875])
    assert "k2 times coef" in found.derivations[0].formula
    # In the loss it is no reward.
    found = traced(zoo, *words, "kl.place=loss")
    assert found.columns["rewards"] == [0, 0, 1]
    # Scores alone are the rewards; so is what was typed as rewards, whatever the KL.
    assert traced(zoo, "--scores", "0,0,1", *KL[4:]).columns["rewards"] == [0, 0, 1]
    found = traced(zoo, "--rewards", "0,0,2", *KL)
    assert (found.columns["rewards"], found.columns["scores"]) == ([0, 0, 2], [0, 0, 1])
    assert found.derivations == []


def test_tokens_have_their_texts(zoo):
    found = traced(zoo, *KL, "--tokens", 'The, answer,","')
    assert [token.text for token in found.tokens] == ["The", " answer", ","]
    two = ("--rewards", "1;0,0", "--estimator", "rloo", "--tokens", "a;b,c", "--row", "1")
    assert [token.text for token in traced(zoo, *two).tokens] == ["b", "c"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--rewards 0,0,1 --advantages 1,2,3", "--advantages: an estimator makes them"),
        ("--rewards 0,0,1 --raw-advantages 1,2,3", "--raw_advantages: an estimator makes them"),
        ("--rewards 0,0,1 --returns 1,2,3", "--returns: an estimator makes them"),
        ("--rewards 0,0,1 --values .3,.4", "--values is 2 long, --rewards 3: one for each token"),
        ("--scores 0,1 --kl 1,2,3", "--kl is 3 long, --scores 2"),
        ("--rewards 0;0,1 --values 0;1", "--values in row 1 is 1 long, --rewards 2"),
        ("--rewards 0;0,1 --values 0", "--values has 1 row, --rewards 2: `;` separates rows"),
        ("--rewards 0,1 --values 0,1 --tokens a", "--tokens is 1 long, --rewards 2"),
        ("--rewards 0,1 --values 0,1 --bootstrap 1,2", "--bootstrap has 2 rows, --rewards 1"),
        ("--kl 0,1", "--kl: typed numbers need --rewards or --scores too"),
    ],
)
def test_what_does_not_fit_is_one_line(zoo, words, said):
    with pytest.raises(UsageError) as error:
        traced(zoo, *words.split())
    assert said in str(error.value)
    assert "\n" not in str(error.value)
