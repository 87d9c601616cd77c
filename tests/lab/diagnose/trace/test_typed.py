"""Typed numbers: scores, KL, texts of tokens; what does not fit is one line."""

import pytest

from rlzoo.cli import parse
from rlzoo.errors import UsageError
from rlzoo_lab.diagnose.trace import command
from rlzoo_lab.diagnose.trace.tables import blocks
from rlzoo_lab.view.html import page

KL = ("--scores", "0,0,1", "--kl", ".5,-.2,.3", "--values", ".3,.4,.6")


def traced(zoo, *words):
    arguments = parse(["trace", *words])
    return command.trace(arguments, zoo)


def test_scores_less_kl_are_the_rewards(zoo):
    found = traced(zoo, *KL, "kl.coef=.1", "whiten=none", "--lam", "0")
    assert found.columns["scores"] == [0, 0, 1]
    assert found.columns["kl"] == pytest.approx([0.5, -0.2, 0.3])
    assert found.columns["rewards"] == pytest.approx([-0.05, 0.02, 0.97])
    assert found.credits[0].columns["advantages"] == pytest.approx([0.05, 0.22, 0.37])
    assert found.derivations[0].formula == "the score minus the KL times coef = 0.1"
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


def test_typed_numbers_are_whitened_only_where_asked(zoo):
    """What is printed is what the formula gives: three tokens are no batch to whiten over."""
    words = ("--rewards", "0,0,1", "--values", ".3,.4,.6", "--lam", ".95")
    (credit,) = traced(zoo, *words).credits
    assert credit.columns["advantages"] == pytest.approx([0.651, 0.58, 0.4])
    assert credit.whitened == ""
    (credit,) = traced(zoo, *words, "whiten=batch").credits
    assert credit.columns["raw_advantages"] == pytest.approx([0.651, 0.58, 0.4])
    assert sum(credit.columns["advantages"]) == pytest.approx(0, abs=1e-6)


def test_advantages_and_log_probs_show_the_policy_loss(zoo):
    """-ratio * A where nothing is clipped; 1.2 and 0.8 times A where it is."""
    words = ("--old-log-probs", "-1,-1,-1", "--log-probs", "-1,-0.5,-2", "--advantages")
    found = traced(zoo, *words, ".13,.5,-1")
    (credit,) = found.credits
    assert found.columns["ratio"] == pytest.approx([1, 1.6487213, 0.3678794])
    assert credit.columns["policy_loss"] == pytest.approx([-0.13, -0.6, 0.8])
    assert credit.clipped == ["no", "high", "low"]
    lines = next(d for d in credit.derivations if d.column == "policy loss").lines
    assert lines[0] == "loss_0 = -ratio_0 * A_0 = -1 * 0.13 = -0.13"
    assert "-0.824361" in lines[1]  # what it would be unclipped
    assert lines[-1].endswith(": 0.0233333")  # the mean, by the recipe's aggregation
    assert found.score is None
    (credit,) = traced(zoo, *words, ".13,.5,-1", "policy_loss=surrogate").credits
    assert credit.columns["policy_loss"] == pytest.approx([-0.13, -0.8243606, 0.3678794])
    line = "loss_1 = -ratio_1 * A_1 = -1.64872 * 0.5 = -0.824361"
    assert credit.derivations[0].lines[1] == line


def test_a_plugins_own_columns_can_be_typed(zoo):
    """`(B,)`, as remax's, and `(B, T)`; the estimator gets them."""
    found = traced(zoo, "--rewards", "0,0,1", "--greedy-scores", ".25", "--estimator", "remax")
    assert found.credits[0].columns["advantages"] == [0.75, 0.75, 0.75]
    words = ("--estimator", "vineppo", "--rewards", "0,1", "--bootstrap", "0")
    found = traced(zoo, *words, "--branch_values", ".5,.75", "--branch_steps", "1,2")
    assert found.credits[0].columns["advantages"] == pytest.approx([0.25, 0.25])


@pytest.mark.parametrize("rewards", ["[0, 0, 1]", "[0,0,1]", "0, 0, 1"])
def test_lists_may_be_written_as_python_has_them(zoo, rewards):
    found = traced(zoo, "--rewards", rewards, "--values", "[.3,.4,.6]")
    assert found.columns["rewards"] == [0, 0, 1]
    two = traced(zoo, "--rewards", "[[0,1],[1]]", "--estimator", "rloo", "--row", "1")
    assert two.rows == 2
    assert two.columns["rewards"] == [1]


def test_the_page_has_inputs_first_and_spaces_as_they_are(zoo):
    """Figure and punctuation spaces put decimal points below each other."""
    words = ("--rewards", "0,0,1", "--values", ".3,.4,.6", "--estimator")
    for estimators in ("gae", "gae,td0,mc"):
        text = page("", blocks(traced(zoo, *words, estimators), True))
        assert "\\u20" not in text
        assert "\u2007" in text
        assert text.count(">value<") == 1  # not once for each estimator
        assert text.index(">reward<") < text.index(">value<") < text.index("advantage</th>")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            "--rewards 0,0,1 --advantages 1,2,3",
            "--advantages: typed advantages are for the policy loss",
        ),
        ("--advantages 1,2 --log-probs 0,0", "give --old_log_probs"),
        (
            "--advantages 1 --log-probs 0 --old-log-probs 0 --lam 1",
            "remove the options of the estimator",
        ),
        ("--rewards 0 0 1 --values .3 .4 .6", "--rewards 0,0,1. Got 0 1 .4 .6"),
        ("--rewards [0, 0, 1] --values 0,0,0", "--rewards 0,0,1. Got 0, 1]"),
        ("--rewards 0 -1 1", "Got -1 1"),
        ("--rewards 0,0,1 --raw-advantages 1,2,3", "--raw_advantages: an estimator"),
        ("--rewards 0,0,1 --returns 1,2,3", "--returns: an estimator"),
        ("--rewards 0,0,1 --values .3,.4", "--values has length 2 but --rewards has length 3"),
        ("--scores 0,1 --kl 1,2,3", "--kl has length 3 but --scores has length 2"),
        (
            "--rewards 0;0,1 --values 0;1",
            "--values in row 1 has length 1 but --rewards has length 2",
        ),
        ("--rewards 0;0,1 --values 0", "--values has 1 row, --rewards 2; separate rows by `;`"),
        (
            "--rewards 0,1 --values 0,1 --tokens a",
            "--tokens has length 1 but --rewards has length 2",
        ),
        ("--rewards 0,1 --values 0,1 --bootstrap 1,2", "--bootstrap has 2 rows, --rewards 1"),
        ("--kl 0,1", "--kl: typed numbers also need --rewards or --scores"),
    ],
)
def test_what_does_not_fit_is_one_line(zoo, words, said):
    with pytest.raises(UsageError) as error:
        traced(zoo, *words.split())
    assert said in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "words",
    [
        ("--rewards", "nan;1;0", "--estimator", "grpo"),
        ("--rewards", "inf;1;0", "--estimator", "grpo"),
        ("--rewards", "1_000;1", "--estimator", "grpo"),
        ("--rewards", "１;0", "--estimator", "grpo"),
        ("--rewards", "0,0,1", "--values", "0,nan,0"),
        ("--scores", "0,0,1", "--old-log-probs=-1,-1,5", "--ref-log-probs=-1,-1,-1"),
        ("--advantages", "1,1,1", "--old-log-probs=-1,-1,-1", "--log-probs=-1,-1,5"),
    ],
)
def test_numbers_that_no_training_has_are_refused(zoo, words):
    with pytest.raises(UsageError, match=r"not a number|log-probability"):
        traced(zoo, *words)


@pytest.mark.parametrize("name", ["grpo", "rloo", "dr_grpo", "passk_max"])
def test_a_group_of_one_says_why_it_gets_nothing(zoo, name):
    def lines_of(rewards):
        found = traced(zoo, "--rewards", rewards, "--estimator", name).credits[0].derivations
        return [line for derivation in found for line in derivation.lines]

    lines = lines_of("1")
    assert any("group of one" in line for line in lines)
    assert "A_0 = 0" in lines
    assert not any("group of one" in line for line in lines_of("1;0"))
