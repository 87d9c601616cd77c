"""The checks of a foreign function: the kit's, and those of what the core ensures for a component.

The core zeroes what is off the mask before a component sees it; a trainer elsewhere does not. And
functions elsewhere may whiten: their credit is judged before it, where they return that, too.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from rlzoo.plugin.component import Component
from rlzoo_lab.kit import checks
from rlzoo_lab.kit.checks import estimators, functions
from rlzoo_lab.kit.checks.subject import NotApplicable, Subject, same
from rlzoo_lab.kit.foreign.bench import BENCH, NoGroupOfOne, on_bench, runs
from rlzoo_lab.kit.foreign.find import components
from rlzoo_lab.kit.foreign.names import REWARDS


def run_checks(component: Component) -> list[checks.CheckResult]:
    """The first result lists the source of each argument."""
    return checks.results_of(cases_of(component))


def cases_of(component: Component) -> Iterator[tuple[str, Callable[[], checks.CheckResult]]]:
    """What is known before any check, and each check, by name."""
    notes = [checks.CheckResult("arguments", True, component.doc)]
    subject, fault = on_bench(component)
    if fault:
        notes.append(checks.CheckResult("groups_of_one", False, f"raised {fault}"))
    credit = subject
    if component.kind == "estimators" and component.couples != "batch" and is_whitened(subject):
        subject = type(subject)(replace(component, couples="batch"), BENCH)
        earlier = before_whitening(subject)
        credit = earlier or subject
        returns = "on its returns" + " - values" * ("values" in subject.needs)
        text = f"over the batch; credit is checked {returns if earlier else 'after it'}"
        notes.append(checks.CheckResult("whitened", True, text))
    yield from ((note.name, partial(replace, note)) for note in notes)
    for each in (*checks.CHECKS[component.kind], padding_may_hold_anything):
        if each is not functions.documented:
            check = _INSTEAD.get(each, each)
            judged = credit if check in _CREDIT else subject
            if check is estimators.baseline_is_the_groups_own:
                judged = NoGroupOfOne(subject.component, BENCH)
            yield check.__name__, partial(checks.judge, check, judged)


def is_whitened(s: Subject) -> bool:
    """Whether advantages have mean 0 and standard deviation 1 over the actions of each batch."""
    for seed in (0, 1):
        if runs(s, seed):  # a check reports it
            return False
        columns = s.batch(seed)
        a = s.call(columns)["advantages"][columns["response_mask"].bool()]
        near = abs(float(a.mean())) < 1e-6
        if not near or min(abs(float(a.std(correction=c)) - 1) for c in (0, 1)) > 1e-4:
            return False
    return True


def before_whitening(s: Subject) -> Subject | None:
    """The estimator whose advantages are its returns without the values; None without returns."""
    if "returns" not in s.call(s.batch()):
        return None
    inner, needs = s.component.function, s.component.needs
    values = needs.index("values") if "values" in needs else None

    def function(*inputs: Any, **options: Any) -> tuple[Tensor, Tensor]:
        _, returns = inner(*inputs, **options)
        return returns if values is None else returns - inputs[values], returns

    return type(s)(replace(s.component, function=function, couples="batch"), s.zoo)


def past_reward_is_no_credit(s: Subject) -> None:
    """A reward that came before an action does not change that action's advantage."""
    for seed in (0, 1):
        columns = s.batch(seed)
        a, mask = s.call(columns)["advantages"], columns["response_mask"].bool()
        spread = a.masked_fill(~mask, -torch.inf).amax(1) - a.masked_fill(~mask, torch.inf).amin(1)
        if not bool((spread[mask.any(1)] > 1e-9).any()):
            raise NotApplicable("gives all actions of a response one advantage")
    estimators.past_reward_is_no_credit(s)


def equal_rewards_give_little(s: Subject) -> str:
    """Equal rewards and groups of one give advantages of 0, or of rounding over an epsilon."""
    larger = NoGroupOfOne(s.component, s.zoo)
    estimators.with_group_baseline(larger)
    said = ""
    for dtype, most in ((torch.float64, 1e-6), (torch.float32, 0.1)):
        plain = larger.batch(mask=torch.ones_like(larger.batch(dtype=dtype)["response_mask"]),
                             dtype=dtype)  # fmt: skip
        for _ in s.variants():
            for case, worst in estimators.largest_of_equal_rewards(s, plain):
                limit = 1e-6 if case == "groups of one" else most
                assert worst <= limit, f"advantages are up to {worst:.3g} from {case} ({dtype})"
                if worst > 1e-6:
                    said = f"rounding of float32 becomes advantages of {worst:.2g}"
    return said


def padding_is_not_read(s: Subject) -> None:
    """Appended padding changes nothing."""
    for columns in s.trials():
        functions.padding_changes_nothing(s, columns)


_INSTEAD: dict[Callable[..., Any], Callable[..., Any]] = {
    estimators.equal_rewards_give_zeros: equal_rewards_give_little,
    estimators.past_reward_is_no_credit: past_reward_is_no_credit,
    functions.padding_is_not_read: padding_is_not_read,
}
_CREDIT = (
    estimators.reward_raises_its_own_advantage,
    past_reward_is_no_credit,
    estimators.exact_values_leave_nothing,
)


def padding_may_hold_anything(s: Subject) -> str:
    """Numbers off the mask change nothing at actions: other trainers do not zero them. Rewards are
    0 there in every trainer, so a function that sums them all passes, with a note."""
    if "response_mask" not in s.needs:
        raise NotApplicable("does not take response_mask")
    sums = []
    for columns in s.trials():
        mask = columns["response_mask"].bool()
        floats = {n: x for n in s.needs if isinstance(x := columns[n], Tensor)
                  and n != "response_mask" and x.shape == mask.shape
                  and x.is_floating_point()}  # fmt: skip
        clean = s.tensors(columns)
        for name, noisy in floats.items():
            dirty = s.tensors({**columns, name: torch.where(mask, noisy, 0.7)})
            got, want = (
                {n: torch.where(mask, x, 0) for n, x in found.items()} for found in (dirty, clean)
            )
            try:
                same(got, want, f"reads {name} off the mask")
            except AssertionError:
                if name not in REWARDS:
                    raise
                sums.append(name)
    return f"sums {' and '.join(dict.fromkeys(sums))} off the mask, too" if sums else ""


def parametrize_with_checks(
    subjects: Iterable[Any], *, map: Mapping[str, str] | None = None, **options: Any
) -> Any:
    """A pytest decorator: runs the test once per check of each function, passed as the callable
    `check`. Needs no component of the zoo.

    subjects: functions, classes with `__call__` or `forward`, or names ("verl:grpo").
    map: argument -> column. options: values of arguments; kind, couples.

    In a test file:

        @rlzoo.parametrize_with_checks([advantages, loss], map={"pay": "rewards"})
        def test_contract(check):
            check()
    """
    made = (c for one in subjects for c in components(one, options, map or {})[0])
    return checks.as_tests(
        (f"{c.name}-{name}", c.name, judge) for c in made for name, judge in cases_of(c)
    )
