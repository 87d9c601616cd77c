"""Every planted bug is caught, by name: a table of components and bugs.

`python -m pytest tests/lab/kit/checks -s -k table` prints it. "-": the component has no place for
the bug. "same": the bug changes neither output nor gradient on any of the kit's batches at any
option, as a masked product cannot tell a dropped mask from a kept one when its columns are clean.
"""

from functools import cache

import pytest
import torch

from helpers.planted_bugs import BUGS, LOSSES, flip_the_gradient, leak_a_gradient, mutate_an_input
from helpers.zoo import ZOO
from rlzoo.plugin.columns import WITH_GRADIENT
from rlzoo_lab.kit import checks
from rlzoo_lab.kit.checks import kl, tasks
from rlzoo_lab.kit.checks.subject import NotApplicable, Subject

COMPONENTS = {f"{c.kind}.{c.name}": c for c in ZOO}

ONE_VALUE = "it reads one value of each response, and no general law fixes which"
OWN_TERM = "its term on right responses has a gradient of its own, with or without advantages"
COUNTS = "only the number of actions and the sum of scores enter, and both stay"
UNSEEN = {  # what no general check can see; tests of the component's own do
    ("estimators.blend", "shift values by one"): ONE_VALUE,
    ("policy_losses.ppo_nll", "drop the mask"): OWN_TERM,
    ("policy_losses.ppo_nll", "leak a gradient"): OWN_TERM,
    ("rewards.length", "drop the mask"): "longer padding is a longer response to it",
    ("rewards.length", "reward at the wrong index"): COUNTS,
}


@cache
def verdict(key, bug):
    """ "-" where the bug has no place, "same" where it is none, else what caught it, or MISSED."""
    component = COMPONENTS[key]
    buggy = bug.plant(component)
    if buggy is None or not runs(component):
        return "-"
    unseen = bug.plant is mutate_an_input  # a fault whatever comes out
    unseen |= component.kind == "tasks"
    unseen |= bug.plant is leak_a_gradient and component.kind not in LOSSES
    if not unseen and not differ(component, buggy):
        return "same"
    if bug.plant is flip_the_gradient and no_mean_gradient(component):
        return "same"
    subject = Subject(buggy, ZOO)
    by_name = {check.__name__: check for check in checks.CHECKS[component.kind]}
    for name in bug.tells:
        if name in by_name and checks.judge(by_name[name], subject).passed is False:
            return name
    return "MISSED"


def runs(component):
    """Not without a model, nor before its options are set: then nothing can be seen of it."""
    subject = Subject(component, ZOO)
    if component.kind == "tasks":
        return checks.judge(tasks.made_as_declared, subject).passed is not None
    try:
        subject.call(subject.batch())
    except NotApplicable:
        return False
    return True


def differ(component, buggy):
    """Whether any output, or a loss's gradient, differs on the kit's batches at any option."""
    one, two = Subject(component, ZOO), Subject(buggy, ZOO)
    for two.options in one.variants():
        for seed in range(3):
            columns = one.batch(seed)
            results = [(one.call(columns), two.call(columns))]
            if component.kind in LOSSES and set(WITH_GRADIENT) & set(component.needs):
                try:
                    theirs = two.gradient(columns)
                except AssertionError:  # none is left
                    return True
                results.append((one.gradient(columns), theirs))
            for a, b in results:
                if any(not torch.allclose(a[n], b[n], rtol=0, atol=1e-12) for n in a):
                    return True
    return False


def no_mean_gradient(component):
    """k1 has a gradient at each token but none in expectation: its sign cannot matter."""
    if component.kind != "kl_penalties":
        return False
    return "zero in expectation" in kl.gradient_leads_to_the_reference(Subject(component, ZOO))


def render_table():
    """Rows: components; columns: bugs; cells: the check that caught it."""
    heads = ["component", *(bug.name for bug in BUGS)]
    rows = [[key, *(verdict(key, bug) for bug in BUGS)] for key in COMPONENTS]
    rows = [row for row in rows if set(row[1:]) != {"-"}]
    widths = [max(map(len, cells)) for cells in zip(heads, *rows, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in [heads, *rows]
    )


@pytest.mark.landing
def test_table_of_planted_bugs():
    print("\n" + render_table())
    missed = [
        (key, bug.name) for key in COMPONENTS for bug in BUGS if verdict(key, bug) == "MISSED"
    ]
    assert set(missed) == set(UNSEEN)
    for bug in BUGS:  # each is caught somewhere: no column is empty by accident
        assert {verdict(key, bug) for key in COMPONENTS} - {"-", "same"}, bug.name
