"""The kit: every shipped component passes, and how checks are found, run and reported."""

import pytest

from helpers.zoo import ZOO
from rlzoo import RlzooError
from rlzoo_lab.kit import checks

COMPONENTS = {f"{c.kind}.{c.name}": c for c in ZOO}


PROCESS = "rewards.math_verify"  # starts one


@pytest.mark.parametrize(
    "key", [pytest.param(k, marks=[pytest.mark.process] * (k == PROCESS)) for k in COMPONENTS]
)
def test_shipped_components_pass(key):
    results = checks.run_checks(COMPONENTS[key], ZOO)
    assert [r for r in results if r.passed is False] == []
    assert any(r.passed for r in results)


def test_kl_value_and_gradient_are_told_apart():
    def found(name):
        results = checks.run_checks(ZOO.kl_penalties[name], ZOO)
        return [
            r.message for r in results if r.message.startswith(("value:", "gradient:")) and r.passed
        ]

    assert found("k1") == [
        "value: the reverse KL in expectation",
        "gradient: zero in expectation, useless as a loss",
    ]
    assert found("k2") == ["value: not the KL", "gradient: reverse KL"]
    assert found("k3") == ["value: the reverse KL in expectation", "gradient: forward KL"]


def test_names_cover_every_kind_that_has_them(golden):
    assert [c.kind for c in checks.named("gpg", ZOO)] == ["estimators", "policy_losses"]
    with golden.refuses(RlzooError):
        checks.named("grpoo", ZOO)


def test_parametrize_names_component_and_check():
    def ids(what):
        return [case.id for case in checks.parametrize(what).args[1]]

    assert "estimator-gae-padding_is_not_read" in ids("gae")
    assert ids(["gae", ZOO.kl_penalties["k1"]]) == ids("gae") + ids(ZOO.kl_penalties["k1"])


def test_a_check_that_does_not_apply_is_skipped():
    cases = {case.id: case.values[0] for case in checks.parametrize("gae").args[1]}
    with pytest.raises(pytest.skip.Exception, match="does not need group_ids"):
        cases["estimator-gae-groups_matter"]()
