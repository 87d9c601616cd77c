"""The rule that holds a run's own components to their checks, on components with one mistake."""

import json

import pytest

from helpers.made_up_runs import made_up_run
from rlzoo.plugin.registry import load_zoo
from rlzoo.runs.folder import open_folder
from rlzoo.runs.provenance import source_hash
from rlzoo_lab.doctor import components
from rlzoo_lab.doctor.command import examine
from rlzoo_lab.doctor.series import read_run

PLUGIN = '''
from rlzoo import hookimpl, td_lambda
from rlzoo.ops import masked_mean


def late(rewards, values, bootstrap_values, response_mask, *, lam: float = 0.95):
    """GAE, each advantage one token late, (B, T). Source: here."""
    a = td_lambda(rewards, values, bootstrap_values, response_mask, gamma=1.0, lam=lam)
    return a.roll(1, 1) * response_mask


def plain(sequence_rewards, response_mask):
    """The reward at every token, (B, T). Source: here."""
    return sequence_rewards[:, None] * response_mask


def clamped(log_probs, advantages):
    """REINFORCE on clamped log-probabilities, (B, T). Source: here."""
    return -advantages * log_probs.clamp(min=-1)


def whole(log_probs, advantages):
    """REINFORCE, (B, T). Source: here."""
    return -advantages * log_probs


def skips(response_mask):
    """1 from the third token on, (B, T). Source: here."""
    return ((response_mask.cumsum(1) > 2) * response_mask).float()


@hookimpl
def register_estimators(register):
    register(late)
    register(plain)


@hookimpl
def register_policy_losses(register):
    register(clamped)
    register(whole)


@hookimpl
def register_columns(register):
    register(skips, shape="BT")
'''


@pytest.fixture
def zoo(tmp_path, monkeypatch):
    file = tmp_path / "own_components.py"
    file.write_text(PLUGIN)
    monkeypatch.setenv("RLZOO_PLUGINS", str(file))
    return load_zoo()


def finding(tmp_path, zoo, after=0.3, source=None, **chosen):
    """What doctor finds in a run of these components: the rule's finding, or None."""
    run = made_up_run(tmp_path / "run", seed=0, after=after, steps=12,
                      **{f"{section}__name": name for section, name in chosen.items()})  # fmt: skip
    kinds = {"estimator": zoo.estimators, "policy_loss": zoo.policy_losses,
             "correction": zoo.columns}  # fmt: skip
    origins = {}
    for section, name in chosen.items():
        component = kinds[section][name]
        origins[f"{section} {name}"] = (
            f"{component.origin}, source {source or source_hash(component)}"
        )
    (run / "provenance.json").write_text(json.dumps([{"components": origins}]))
    found, _ = examine(read_run(open_folder(str(run))))
    rules = ("component_fails_its_check", "tokens_weighted_unequally")
    return next((f for f in found if f.rule in rules), None)


def test_an_estimator_that_fails_a_check_is_named_with_the_checks_words(tmp_path, zoo):
    found = finding(tmp_path, zoo, estimator="late")
    assert (found.rule, found.severity) == ("component_fails_its_check", "problem")
    assert found.evidence["component"] == "late"
    assert found.evidence["failed"][0] == "past_reward_is_no_credit"
    assert "own_components.py" in found.what


def test_it_is_a_warning_where_the_run_learns(tmp_path, zoo):
    assert finding(tmp_path, zoo, estimator="late", after=0.9).severity == "warning"


def test_a_correct_component_of_ones_own_is_not_named(tmp_path, zoo):
    assert finding(tmp_path, zoo, estimator="plain", policy_loss="whole") is None


def test_a_component_that_was_changed_since_is_not_judged(tmp_path, zoo):
    assert finding(tmp_path, zoo, estimator="late", source="0123456789abcdef") is None


def test_a_component_that_is_not_loaded_is_not_judged(tmp_path, zoo, monkeypatch):
    monkeypatch.setenv("RLZOO_PLUGINS", "")
    assert finding(tmp_path, zoo, estimator="late") is None


def test_numbers_of_the_recipe_reach_the_check_and_nothing_else_does(tmp_path, zoo):
    run = made_up_run(tmp_path / "run", seed=0, after=0.3, estimator__name="late",
                      estimator__lam=0.5)  # fmt: skip
    record = read_run(open_folder(str(run)))
    late = zoo.estimators["late"]
    assert components.numbers(record, "estimator", late) == {"lam": 0.5}
    run = made_up_run(tmp_path / "other", seed=0, after=0.3, estimator__name="late",
                      estimator__lam="/a/file")  # fmt: skip
    assert components.numbers(read_run(open_folder(str(run))), "estimator", late) == {}


def test_a_baseline_over_the_batch_is_a_choice_where_it_is_declared(tmp_path, monkeypatch):
    file = tmp_path / "own_components.py"
    file.write_text(
        PLUGIN.replace("register(plain)", 'register(plain)\n    register(median, couples="batch")')
        + '''

def median(sequence_rewards, response_mask):
    """R_i minus the batch's median, (B, T). Source: here."""
    return (sequence_rewards - sequence_rewards.median())[:, None] * response_mask
'''
    )
    monkeypatch.setenv("RLZOO_PLUGINS", str(file))
    assert finding(tmp_path, load_zoo(), estimator="median") is None
