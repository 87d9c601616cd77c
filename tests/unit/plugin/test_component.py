"""Signatures as declarations: needs, options, what is refused and in which words."""

from typing import Annotated, Literal

import pytest
import torch

from rlzoo import Range
from rlzoo.errors import ComponentError
from rlzoo.plugin.component import read_component
from rlzoo.plugin.options import Option


def good(rewards, response_mask, *, lam: Annotated[float, Range(0, 1)] = 0.5, n: int = 2):
    """Rewards, scaled.

    Source: nobody.
    """
    return rewards * lam


def read(function, kind="estimators", **extra):
    return read_component(kind, function, "test", **extra)


def test_needs_options_and_source_come_from_the_signature():
    component = read(good)
    assert component.name == "good"
    assert component.needs == ("rewards", "response_mask")
    assert {n: o.default for n, o in component.options.items()} == {"lam": 0.5, "n": 2}
    assert component.source == "nobody."
    assert "test_component.py" in component.file


def test_string_annotations_resolve():
    def late(
        rewards, *, lam: "Annotated[float, Range(0, 1)]" = 0.5, pick: "Literal['a', 'b']" = "a"
    ):
        """Late.  Author 2020, arXiv:2001.00001."""
        return rewards

    component = read(late)
    assert component.options["lam"].range == Range(0, 1)
    assert component.options["pick"].type_text == "one of a, b"
    assert component.source == "Author 2020, arXiv:2001.00001"


def test_class_names_become_snake_case():
    class KeyDoor:
        def __init__(self, *, keys: int = 2): ...

    assert read(KeyDoor, "tasks").name == "key_door"


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: eval("lambda rewards, lam=1: rewards"), "no usable name"),
        (lambda: _defined("def f(rewards, lam=1): ..."), "'lam' has a default"),
        (lambda: _defined("def f(rewards, *, lam=1): ..."), "'lam' has no type"),
        (lambda: _defined("def f(rewards, *, lam: float): ..."), "'lam' has no default"),
        (lambda: _defined("def f(rewards, *, lam: complex = 1j): ..."), "no usable type"),
        (lambda: _defined("def f(rewards, *, lam: int = 'x'): ..."), "must be an int. Got 'x'"),
        (lambda: _defined("def f(rewards, *more): ..."), "'*more' declares nothing"),
        (lambda: _defined("def f(rewards, **more): ..."), "'**more' declares nothing"),
        (lambda: _defined("def f(rewards, *, lam: 'Nope' = 1): ..."), "cannot be read"),
        (lambda: _defined("def gr\u0440o(rewards): ...\nf = gr\u0440o"), "gr\\u0440o"),
        (lambda: 3, "not a function"),
    ],
)
def test_malformed_signatures_are_refused_in_one_line(make, words):
    with pytest.raises(ComponentError) as caught:
        read(make())
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def _defined(source):
    space = {}
    exec(source, space)
    return space["f"]


@pytest.mark.parametrize(
    ("kind", "value", "fits"),
    [
        (float, 1, True),
        (float, True, False),
        (float, "1", False),
        (float, float("nan"), False),
        (float, float("inf"), False),
        (int, 1.0, False),
        (int, True, False),
        (bool, 1, False),
        (bool, True, True),
        (float | None, None, True),
        (float | None, "x", False),
        (Literal[0, 1], True, False),
        (Literal[0, 1], 1, True),
        (list[float], [1, 2.5], True),
        (list[float], [1, "x"], False),
        (Annotated[float, Range(0, 1, closed="right")], 0.0, False),
        (Annotated[int | None, Range(1)], 0, False),
        (str, "x", True),
        (str, 2026, True),
        (str, True, False),
    ],
)
def test_options_take_only_what_they_say(kind, value, fits):
    option = Option.read("x", kind)
    if fits:
        option.check(value)
    else:
        with pytest.raises(ValueError, match="Got"):
            option.check(value)


def test_unknown_option_and_missing_column_name_the_nearest():
    component = read(good)
    columns = {"reward": torch.zeros(1, 2), "response_mask": torch.ones(1, 2)}
    with pytest.raises(ComponentError, match="did you mean 'lam'") as caught:
        component(columns, lamm=1.0)
    assert (caught.value.key, caught.value.kind) == ("lamm", "unknown-key")
    with pytest.raises(ComponentError, match="did you mean 'reward'") as caught:
        component(columns)
    assert (caught.value.key, caught.value.kind) == ("rewards", "unmet-need")
    for wrong, kind in ((2, "out-of-range"), ("x", "wrong-type")):
        with pytest.raises(ComponentError) as caught:
            component(columns, lam=wrong)
        assert (caught.value.key, caught.value.kind) == ("lam", kind)


def call(body, **columns):
    """Call an estimator with this body on rewards and mask."""
    mask = torch.tensor([[1.0, 1.0, 0.0], [1.0, 0.0, 0.0]], dtype=torch.float64)
    space = {"torch": torch}
    exec(f"def f(rewards, response_mask):\n    'x'\n    return {body}", space)
    given = {"rewards": torch.full((2, 3), torch.nan, dtype=torch.float64), "response_mask": mask}
    given["rewards"] = torch.where(mask > 0, 2.0, given["rewards"])
    return read(space["f"])({**given, **columns})


def test_inputs_and_outputs_are_exact_zeros_off_the_mask():
    out = call("rewards + 1")["advantages"]
    assert out.tolist() == [[3, 3, 0], [3, 0, 0]]


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("rewards.sum(1)", r"shape \(2,\) instead of \(2, 3\)"),
        ("rewards.float()", "dtype torch.float32 instead of torch.float64"),
        ("rewards.long()", "dtype torch.int64, not a float"),
        ("rewards / 0 - rewards / 0", "NaN or infinity for finite inputs"),
        ("3", "of type int, not a tensor"),
        ("(rewards, rewards, rewards)", "a tuple of 3, not advantages or"),
        ("rewards.to('meta')", "on meta instead of cpu"),
    ],
)
def test_outputs_that_break_the_contract_name_the_component(body, words):
    with pytest.raises(ComponentError, match=words) as caught:
        call(body)
    assert (caught.value.key, caught.value.kind) == ("f", "plugin-fault")
    assert "\n" not in str(caught.value)


def test_estimators_carry_no_gradient_and_leave_inputs_alone():
    rewards = torch.ones(1, 2, requires_grad=True)
    before = rewards.detach().clone()

    def f(rewards, response_mask):
        """Doubles in place."""
        rewards.mul_(2)
        return rewards

    out = read(f)({"rewards": rewards, "response_mask": torch.ones(1, 2)})
    assert not out["advantages"].requires_grad
    assert torch.equal(rewards.detach(), before)


def test_targets_reach_a_loss_without_their_history(zoo):
    given = {
        name: torch.rand(2, 3, dtype=torch.float64, requires_grad=True)
        for name in ("log_probs", "old_log_probs", "advantages", "value_preds", "values", "returns")
    }
    columns = {**given, "response_mask": torch.ones(2, 3, dtype=torch.float64)}
    for component in (zoo.policy_losses["ppo_clip"], zoo.value_losses["clipped_mse"]):
        component(columns)[0].sum().backward()
    reached = {name for name, x in given.items() if x.grad is not None}
    assert reached == {"log_probs", "value_preds"}


def test_returns_come_only_with_values(zoo):
    mask = torch.ones(2, 2)
    columns = {
        "rewards": mask, "values": mask, "bootstrap_values": mask[:, 0], "response_mask": mask,
        "sequence_rewards": mask.sum(1), "group_ids": torch.tensor([0, 0]),
    }  # fmt: skip
    assert "returns" in zoo.estimators["gae"](columns)
    assert "returns" not in zoo.estimators["rloo"](columns)


def test_without_returns_the_target_is_the_advantage_plus_v():
    def f(values, response_mask):
        "x"
        return 2 * values

    given = {"values": torch.tensor([[1.0, 3.0]]), "response_mask": torch.tensor([[1.0, 0.0]])}
    assert read(f)(given)["returns"].tolist() == [[3.0, 0.0]]
