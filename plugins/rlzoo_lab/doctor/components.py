"""Rules about the run's own components: the doctor runs `rlzoo check` on those that do not come
with rlzoo, with the numbers that the run set as options. Metrics show that there is a fault; a
check that fails shows which."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from rlzoo.errors import RlzooError
from rlzoo.plugin.component import Component
from rlzoo.plugin.registry import Zoo, load_zoo
from rlzoo.runs.provenance import source_hash
from rlzoo_lab.doctor.rule import SYMPTOMS, rule
from rlzoo_lab.doctor.series import Finding, learning
from rlzoo_lab.doctor.suspects import origins
from rlzoo_lab.records.record import Record

if TYPE_CHECKING:
    from torch import Tensor

# Checks whose failure changes what a policy learns, the most informative first. Documentation, rare
# inputs and extreme options are left out: `rlzoo check` has them.
TELLING = (
    "praise_raises_the_probability", "no_advantage_no_push", "value_is_a_divergence",
    "gradient_leads_to_the_reference", "pushes_towards_the_target", "past_reward_is_no_credit",
    "reward_raises_its_own_advantage", "teacher_raises_what_it_prefers",
    "exact_values_leave_nothing", "baseline_is_the_groups_own", "equal_rewards_give_zeros",
    "groups_matter", "weights_are_weights", "right_is_right", "scores_are_causal",
    "answers_row_by_row", "rows_in_any_order", "couples_as_declared", "padding_is_not_scored",
    "zero_off_the_mask", "padding_is_not_read", "holes_are_stepped_over",
)  # fmt: skip
OURS = ("rlzoo_zoo.", "rlzoo_bridges.", "rlzoo_lab.")

# Rules that see such a fault in the metrics.
SHOWN_BY = (
    *SYMPTOMS, "advantages_do_not_follow_scores", "advantages_not_centred",
    "loss_does_not_follow_advantages", "tokens_without_advantage", "advantage_at_the_end_is_off",
    "reward_is_not_what_is_right", "right_answers_are_not_paid", "wrong_answers_are_paid",
    "reward_at_the_wrong_index", "kl_pays", "kl_too_strong", "policy_does_not_move",
    "update_too_large", "reward_jumps_between_steps",
)  # fmt: skip


def own(run: Record, zoo: Zoo) -> Iterator[tuple[str, Component]]:
    """(section, component) of each that does not come with rlzoo and whose source is still that of
    the run. One that is not loaded, or was changed since, cannot be judged."""
    for what, origin in origins(run).items():
        where, _, source = str(origin).rpartition(", source ")
        if where.startswith(OURS):
            continue
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


def severity(run: Record, failed: list[str]) -> str:
    """A fault of observations inside responses matters less where the run has no such responses."""
    if failed == ["holes_are_stepped_over"] and not run.has("turns/mean"):
        return "note" if learning(run) else "warning"
    return "warning" if learning(run) else "problem"


@rule(explains=SHOWN_BY)
def component_fails_its_check(run: Record) -> Finding | None:
    """A component that does not come with rlzoo breaks what holds for all of its kind."""
    if all(str(origin).startswith(OURS) for origin in origins(run).values()):
        return None
    from rlzoo_lab import checks  # here: it loads torch

    zoo = load_zoo()
    for section, component in own(run, zoo):
        results = checks.run_checks(component, zoo, numbers(run, section, component))
        said = {r.name: r.message for r in results if r.passed is False}
        failed = [n for n in TELLING if n in said and not said[n].startswith("raised ")]
        if failed:
            return Finding(
                severity(run, failed),
                f"{section}={component.name} ({component.file}) fails checks that hold for every "
                f"{section.partition('.')[0].replace('_', ' ')}: "
                f"{'; '.join(f'{n}: {said[n]}' for n in failed[:3])}.",
                f"Correct it, repeat `rlzoo check {component.name}` and train again.",
                {"component": component.name, "failed": failed},
            )
    return None


@rule(explains=SYMPTOMS)
def tokens_weighted_unequally(run: Record) -> Finding | None:
    """Before any update the run's own loss or correction weights tokens by more than their
    advantages, and the run does not learn."""
    if learning(run) or all(str(origin).startswith(OURS) for origin in origins(run).values()):
        return None
    from rlzoo_lab.checks.subject import Subject

    zoo = load_zoo()
    for section, component in own(run, zoo):
        if section not in ("policy_loss", "correction"):
            continue
        what = on_own_samples(Subject(component, zoo), numbers(run, section, component))
        if what:
            return Finding(
                "warning",
                f"On samples of the policy itself, {section}={component.name} ({component.file}) "
                f"weights tokens by more than their advantages: {what}. The run does not learn.",
                f"If this is not intended, correct {component.name}; else train once without it.",
                {"component": component.name},
            )
    return None


def on_own_samples(subject: Any, options: dict[str, Any]) -> str:
    """How a policy loss or a correction treats tokens at ratio 1, in words: which get no weight, or
    whether it follows their probability. Empty where all tokens of a response are treated alike,
    with the reference at the policy and away from it, or where it needs what only a run has."""
    import torch

    from rlzoo_lab.checks.losses import pushes
    from rlzoo_lab.checks.subject import NotApplicable

    said = []
    for drift in (0.0, 1.0):
        columns = subject.batch()
        mask = columns["response_mask"].bool()
        at = columns["old_log_probs"]
        draw = torch.Generator().manual_seed(0)
        away = drift * torch.randn(at.shape, generator=draw, dtype=at.dtype) * mask
        try:
            if subject.kind == "policy_losses":
                signs, push = pushes(subject, 1.0, ref_log_probs=at + away, **options)
                weight = push / torch.where(signs == 0, 1, signs)
            else:
                columns |= {"log_probs": at, "sampler_log_probs": at, "ref_log_probs": at + away}
                weight = next(iter(subject.tensors(columns, **options).values()))
        except (NotApplicable, RlzooError, AssertionError):
            return ""
        if weight.shape != mask.shape:
            return ""
        said.append(unequal(weight, mask, at.exp()))
    if said[1] and not said[0]:
        return f"once the policy has left the reference, {said[1]}"
    return said[0]


def unequal(weight: "Tensor", mask: "Tensor", probability: "Tensor") -> str:
    """Which tokens get less weight, all (B, T); empty where those of a row are equal."""
    import torch

    top = weight.masked_fill(~mask, -torch.inf).amax(1, keepdim=True)
    low = weight.masked_fill(~mask, torch.inf).amin(1, keepdim=True)
    rows = mask.any(1)
    if bool(((top - low)[rows] <= 1e-6 * top[rows].abs().clamp(min=1e-9)).all()):
        return ""
    none = mask & (weight.abs() < 1e-9)
    if bool(none.any()):
        left, p = mask & ~none, probability
        share = f"{float(none.sum() / mask.sum()):.0%} of them get no weight"
        steps = mask.cumsum(1)
        if not bool(left.any()):
            return share
        if p[none].max() < p[left].min():
            return f"{share}, those with a probability below {float(p[left].min()):.2g}"
        if p[none].min() > p[left].max():
            return f"{share}, those with a probability above {float(p[left].max()):.2g}"
        if steps[none].max() < steps[left].min():
            return f"{share}, the first {int(steps[none].max())} of each response"
        if steps[none].min() > steps[left].max():
            return f"{share}, those after the first {int(steps[left].max())} of each response"
        return share
    both = torch.stack([weight[mask], probability[mask]]).double()
    corr = float(torch.corrcoef(both)[0, 1])
    if abs(corr) > 0.5:
        return f"the weight {'rises' if corr > 0 else 'falls'} with the token's probability"
    return "the weights within a response differ"
