"""Rules about the run's own components: the doctor runs `rlzoo check` on those that do not come
with rlzoo, with the numbers that the run set as options. Metrics show that there is a fault; a
check that fails shows which."""

from collections.abc import Iterator
from typing import Any

from rlzoo.plugin.component import Component
from rlzoo.plugin.registry import Zoo, load_zoo
from rlzoo.runs.provenance import source_hash
from rlzoo_lab.data.record import Record
from rlzoo_lab.doctor.rule import cause
from rlzoo_lab.doctor.series import Finding, severity
from rlzoo_lab.doctor.suspects import foreign

# Checks whose failure changes what a policy learns, the most informative first. Documentation, rare
# inputs and extreme options are left out: `rlzoo check` has them.
TELLING = (
    "praise_raises_the_probability", "no_advantage_no_push", "value_is_a_divergence",
    "gradient_leads_to_the_reference", "pushes_towards_the_target", "past_reward_is_no_credit",
    "reward_raises_its_own_advantage", "teacher_raises_what_it_prefers",
    "exact_values_leave_nothing", "baseline_is_the_groups_own", "equal_rewards_give_zeros",
    "groups_matter", "weights_are_weights", "right_is_right", "right_beats_wrong",
    "deterministic", "draws_by_the_generator", "scores_repeat", "scores_are_causal",
    "answers_row_by_row", "rows_in_any_order", "couples_as_declared",
    "zero_off_the_mask", "padding_is_not_read", "holes_are_stepped_over",
)  # fmt: skip
# Checks that a component with couples="batch" may fail on purpose.
OF_GROUPS = ("baseline_is_the_groups_own", "equal_rewards_give_zeros", "groups_matter")


def own(run: Record, zoo: Zoo) -> Iterator[tuple[str, Component]]:
    """(section, component) of each that does not come with rlzoo and whose source is still that of
    the run. One that is not loaded, or was changed since, cannot be judged."""
    for what, (where, source) in foreign(run).items():
        section, _, name = what.rpartition(" ")
        for component in zoo:
            if name in (component.name, component.full_name) and component.origin == where:
                if source_hash(component) == source:
                    yield section, component
                break


def numbers(run: Record, section: str, component: Component) -> dict[str, Any]:
    """The options that the run set, as far as they are numbers: the recipe may be untrusted."""
    keys = {name: f"{section}.{name}" for name in component.options}
    return {n: x for n, k in keys.items() if isinstance(x := run.key(k), int | float)}


@cause()
def component_fails_its_check(run: Record) -> Finding | None:
    """A component that does not come with rlzoo fails a check that all of its kind must pass."""
    if not foreign(run):
        return None
    from rlzoo_lab.kit import checks  # here: it loads torch

    zoo = load_zoo()
    for section, component in own(run, zoo):
        results = checks.run_checks(component, zoo, numbers(run, section, component))
        said = {r.name: r.message for r in results if r.passed is False}
        failed = [n for n in TELLING if n in said and not said[n].startswith("raised ")]
        if component.couples == "batch":
            failed = [n for n in failed if n not in OF_GROUPS]
        if failed:
            grade = severity(run)
            # Without such responses in the run, observations inside them matter less.
            if failed == ["holes_are_stepped_over"] and not run.has("turns/mean"):
                grade = "note" if grade == "warning" else "warning"
            return Finding(
                grade,
                f"{section}={component.name} ({component.file}) fails checks that every "
                f"{section.partition('.')[0].replace('_', ' ')} must pass: "
                f"{'; '.join(f'{n}: {said[n]}' for n in failed[:3])}.",
                f"Correct it, repeat `rlzoo check {component.name}` and train again.",
                {"component": component.name, "failed": failed},
            )
    return None
