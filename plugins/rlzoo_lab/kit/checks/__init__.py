"""The conformance kit: small named checks that every component meets its contract.

It is similar to scikit-learn's `check_estimator` and Gymnasium's `check_env`. A check is a function
of the subject that raises AssertionError with one line; its name states the property, its docstring
the rule. `run_checks` runs the checks for a component's kind, and `parametrize` turns them into
pytest tests:

    from rlzoo import checks

    @checks.parametrize("my_estimator")
    def test_contract(check):
        check()

May import `mdp`, `runs` and the layers below; no model.

    estimators    which actions get credit, for which rewards, against which baseline
    functions     properties of every function of columns
    kl            KL penalties against the exact KL
    losses        which way policy and value losses push
    made_up       made-up batches with every column there is
    others        aggregations, columns, loggers, rewards
    slope         gradients compared with finite differences
    subject       the component under judgement, and how it is called
    tasks         objects that draw prompts and score responses
"""

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from traceback import extract_tb
from typing import Any

from rlzoo.errors import RlzooError, UnknownName, nearest
from rlzoo.plugin.border import SKIP, told, unchanged
from rlzoo.plugin.component import KINDS, Component
from rlzoo.plugin.registry import Zoo, left_out, load_zoo
from rlzoo_lab.kit.checks import estimators, functions, kl, losses, others, tasks
from rlzoo_lab.kit.checks.subject import NotApplicable, Subject

BASIC = ("defaults_work", "made_as_declared", "draws_by_the_generator")  # others rest on these
KIT = str(Path(__file__).parents[1])
Check = Callable[[Subject], str | None]  # what it returns is worth saying where it passes


CHECKS: dict[str, tuple[Check, ...]] = {
    "estimators": functions.ALL + estimators.ALL,
    "kl_penalties": functions.ALL + kl.ALL,
    "policy_losses": functions.ALL + losses.POLICY,
    "value_losses": functions.ALL + losses.VALUE,
    "aggregations": (
        *functions.ALL,
        others.weights_are_weights,
        functions.rows_without_an_action_count_nothing,
    ),
    "columns": (*functions.ALL, others.example_is_like_the_column),
    "tasks": (functions.documented, *tasks.ALL),
    "rewards": (*functions.ALL, others.right_beats_wrong),
    "loggers": (functions.documented, others.takes_what_a_run_gives),
    # Their work shows only in a run.
    "samplers": (functions.documented,),
    "executors": (functions.documented,),
}


@dataclass(frozen=True)
class CheckResult:
    """passed: None if the check does not apply; message: the fault, reason or finding."""

    name: str
    passed: bool | None
    message: str = ""


def run_checks(
    component: Component, zoo: Zoo | None = None, options: Mapping[str, Any] | None = None
) -> list[CheckResult]:
    """Check one component; `zoo` (default: the installed one) gives the shapes of columns.

    options: replace defaults, for a component that does nothing until one is set.
    """
    given = component.check_options(options or {})
    preset = {n: dataclasses.replace(o, default=given[n]) for n, o in component.options.items()}
    component = dataclasses.replace(component, options=preset)
    subject = Subject(component, load_zoo() if zoo is None else zoo)
    return results_of((c.__name__, partial(judge, c, subject)) for c in CHECKS[component.kind])


def results_of(cases: Iterable[tuple[str, Callable[[], CheckResult]]]) -> list[CheckResult]:
    """The results of (name, what judges), of which those after a failed basic check are n/a."""
    results: list[CheckResult] = []
    for name, judged in cases:
        basic = [r.name for r in results if r.passed is False and r.name in BASIC]
        results.append(CheckResult(name, None, f"see {basic[0]}") if basic else judged())
    return results


def judge(check: Check, subject: Subject) -> CheckResult:
    subject.options = {}
    with unchanged() as changed:
        passed, message = _judge(check, subject)
    if changed:
        passed, message = False, f"changes {' and '.join(changed)} for all of the process"
    return CheckResult(check.__name__, passed, message)


def _judge(check: Check, subject: Subject) -> tuple[bool | None, str]:
    try:
        return True, check(subject) or ""
    except NotApplicable as reason:
        return None, str(reason)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # the plugin border: a third-party function may raise anything
        where = extract_tb(error.__traceback__)[-1].filename
        own = isinstance(error, AssertionError) and where.startswith(KIT)
        plain = own or isinstance(error, RlzooError)
        fault = " ".join(str(error).split()) if plain else f"raised {told(error, (*SKIP, KIT))}"
    return False, fault + "".join(f" ({name}={x!r})" for name, x in subject.options.items())


def parametrize(what: Any) -> Any:
    """A pytest decorator: runs the test once per check of `what`, passed as the callable `check`.

    what: a component's name, a Component, a Zoo, or several of these.
    """
    return as_tests(
        (f"{KINDS[c.kind].singular}-{c.name}-{check.__name__}", c.label, partial(judge, check, s))
        for c, zoo in _components(what)
        for s in [Subject(c, zoo)]
        for check in CHECKS[c.kind]
    )


def named(name: str, zoo: Zoo) -> list[Component]:
    """The components of that name, at most one of each kind; raises UnknownName without any."""
    components = [shelf[name] for shelf in zoo.shelves.values() if name in shelf]
    if components:
        return components
    for shelf in zoo.shelves.values():
        if name in shelf.clashes:
            raise UnknownName(shelf.clashes[name])
    hint = nearest(name, {c.name for c in zoo}) + left_out(name, zoo.broken)
    raise UnknownName(f"there is no component {name!r}{hint}")


def _components(what: Any) -> Iterable[tuple[Component, Zoo]]:
    if isinstance(what, Zoo):
        return [(component, what) for component in what]
    zoo = load_zoo()
    if isinstance(what, Component):
        return [(what, zoo)]
    if isinstance(what, str):
        return [(component, zoo) for component in named(what, zoo)]
    return [pair for item in what for pair in _components(item)]


def as_tests(judged: Iterable[tuple[str, str, Callable[[], CheckResult]]]) -> Any:
    """The decorator of (id of a test, label of what is judged, what judges it)."""
    import pytest  # a test dependency: `rlzoo check` works without

    def test(label: str, judge: Callable[[], CheckResult]) -> None:
        result = judge()
        if result.passed is None:
            pytest.skip(result.message)
        if not result.passed:
            pytest.fail(f"{label}: {result.message}", pytrace=False)

    cases = [pytest.param(partial(test, label, judge), id=name) for name, label, judge in judged]
    return pytest.mark.parametrize("check", cases)


__all__ = ["CHECKS", "CheckResult", "as_tests", "named", "parametrize", "run_checks"]
