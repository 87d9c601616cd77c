"""The kit judges right: every shipped component passes, every planted bug is caught, by name.

`python -m pytest tests/unit/checks -s -k table` prints which bug applies where, and its catcher.
"""

import dataclasses
from collections import namedtuple
from functools import cache, wraps
from typing import Annotated

import pytest
import torch

from rlzoo import Example, Range, RlzooError, checks, group_mean, group_std, load_zoo
from rlzoo.checks import kl, tasks
from rlzoo.checks.subject import NotApplicable, Subject
from rlzoo.ops import collapse, expand, next_action, whiten
from rlzoo.plugin.columns import WITH_GRADIENT
from rlzoo.plugin.component import needs_of, read_component

ZOO = load_zoo()
COMPONENTS = {f"{c.kind}.{c.name}": c for c in ZOO}
LOSSES = ("policy_losses", "value_losses", "kl_penalties")
PER_TOKEN = ("estimators", "aggregations", *LOSSES)
FUNCTIONS = (*PER_TOKEN, "columns", "rewards")


@pytest.mark.parametrize("key", COMPONENTS)
def test_shipped_components_pass(key):
    results = checks.run_checks(COMPONENTS[key], ZOO)
    assert [r for r in results if r.passed is False] == []
    assert any(r.passed for r in results)


# ---------------------------------------------------------------- planted bugs
#
# A bug wraps the inputs or the output of a shipped function. It is planted where a component has
# the organ for it ("-" elsewhere). Where it then changes neither output nor gradient on any of the
# kit's batches at any option, it is no bug: a masked product cannot tell a dropped mask from a kept
# one when its columns are clean, and the table says "same". `tells` are the checks that may say so.

Bug = namedtuple("Bug", "name plant tells")


def rewire(component, change):
    """`component` with its inputs changed: change(columns) -> columns."""

    def function(*inputs, **options):
        columns = change(dict(zip(component.needs, inputs, strict=True)))
        return component.function(*columns.values(), **options)

    return dataclasses.replace(component, function=function)


def remake(component, change):
    """`component` with its output changed: change(output tensor, columns) -> tensor."""

    def function(*inputs, **options):
        output = component.function(*inputs, **options)
        columns = dict(zip(component.needs, inputs, strict=True))
        if isinstance(output, tuple):
            return (change(output[0], columns), *output[1:])
        return change(output, columns)

    return dataclasses.replace(component, function=function)


def rescore(component, change):
    """A task with another `score`: change(score, columns by name) -> scores."""

    def make(**options):
        task = component.function(**options)
        score = task.score

        @wraps(score)
        def changed(*columns):
            return change(score, dict(zip(needs_of(score), columns, strict=True)))

        task.score = changed
        return task

    return dataclasses.replace(component, function=make)


def drop_the_mask(c):
    """Every token counts as an action. Where a function sees the mask."""
    if "response_mask" in c.needs and c.kind in FUNCTIONS:
        return rewire(c, lambda x: {**x, "response_mask": torch.ones_like(x["response_mask"])})
    return None


def whiten_over_padding(c):
    """Standardised over all entries, padding too. Where one number per token comes out."""
    if c.kind in PER_TOKEN or c.shape == "BT":
        return remake(c, lambda out, _: (out - out.mean()) / (out.std(correction=0) + 1e-8))
    return None


def global_mean_for_group_mean(c):
    """The batch is taken for one group. Where a function sees groups."""
    if "group_ids" in c.needs and c.kind in FUNCTIONS:
        return rewire(c, lambda x: {**x, "group_ids": torch.zeros_like(x["group_ids"])})
    return None


def flip_the_sign(c):
    """What should rise falls. Where there is a direction: columns and rewards have none."""
    return remake(c, lambda out, _: -out) if c.kind in PER_TOKEN else None


def flip_the_gradient(c):
    """The value is right, its gradient is not. Where one is used: losses."""
    return remake(c, lambda out, _: 2 * out.detach() - out) if c.kind in LOSSES else None


def shift_values_by_one(c):
    """V read after its token. Where a component sees the critic's values."""
    if "values" not in c.needs:
        return None

    def shift(x):
        mask = x.get("response_mask", torch.ones_like(x["values"]))
        return {**x, "values": next_action(x["values"], mask)}

    return rewire(c, shift)


def reward_at_the_wrong_index(c):
    """Paid one token late, the last one after EOS. Where rewards come or go token by token."""
    if c.kind == "tasks":
        if checks.judge(tasks.scores_are_causal, Subject(c, ZOO)).passed is None:
            return None  # it scores whole responses

        def postpone(score, x):
            scores = score(*x.values())
            return scores.roll(1, 1) if scores.ndim == 2 else scores

        return rescore(c, postpone)
    per_token = [n for n in ("rewards", "scores", "task_scores") if n in c.needs]
    if not per_token or c.kind not in ("estimators", "rewards"):
        return None

    def late(reward, mask):
        packed = torch.nn.functional.pad(collapse(reward, mask), (1, 0))[:, :-1]
        return expand(packed, mask)

    def delay(x):
        mask = x.get("response_mask", torch.ones_like(x[per_token[0]]))
        return {**x, **{n: late(x[n], mask) for n in per_token}}

    return rewire(c, delay)


def leak_a_gradient(c):
    """Into a loss through its target; out of everything else, which is data."""
    target = {"policy_losses": "advantages", "value_losses": "returns"}.get(c.kind, "ref_log_probs")
    if c.kind in LOSSES and target in c.needs:

        def leak(x):
            if "value_logits" in x:
                live = x["value_logits"].softmax(-1) @ x["value_support"]
            else:
                live = x.get("log_probs", x.get("value_preds"))
            return {**x, target: x[target] + live - live.detach()}

        return rewire(c, leak)
    if c.kind in FUNCTIONS and c.kind not in LOSSES:
        return remake(c, lambda out, _: out + torch.zeros((), requires_grad=True))
    return None


def mutate_an_input(c):
    """The first column that a function is given, changed in place."""

    def mutate(x):
        first = next(iter(x.values()))
        if isinstance(first, list):
            first.append(first[0])
        elif first.dtype == torch.bool:
            first.logical_not_()
        else:
            first.add_(1)
        return x

    if c.kind == "tasks":
        return rescore(c, lambda score, x: score(*mutate(x).values()))
    return rewire(c, mutate) if c.kind in FUNCTIONS else None


def output_off_the_mask(c):
    """Ones where there is no action. Where a function sees the mask; and in any reward per token,
    for nobody cleans up after a reward."""
    if c.kind == "rewards":
        return remake(c, lambda out, _: out + (out == 0) if out.ndim == 2 else out)
    if "response_mask" in c.needs and (c.kind in PER_TOKEN or c.shape == "BT"):
        return remake(c, lambda out, x: torch.where(x["response_mask"].bool(), out, 1).to(out))
    return None


DIRECTIONS = (
    "reward_raises_its_own_advantage", "value_is_a_divergence", "gradient_leads_to_the_reference",
    "praise_raises_the_probability", "pushes_towards_the_target", "weights_are_weights",
)  # fmt: skip

BUGS = tuple(
    Bug(plant.__name__.replace("_", " "), plant, tells)
    for plant, tells in {
        drop_the_mask: ("padding_is_not_read", "holes_are_stepped_over", "zero_off_the_mask"),
        whiten_over_padding: ("padding_is_not_read",),
        global_mean_for_group_mean: (
            "couples_as_declared", "baseline_is_the_groups_own", "groups_matter",
        ),
        flip_the_sign: DIRECTIONS,
        flip_the_gradient: DIRECTIONS,
        shift_values_by_one: ("exact_values_leave_nothing", "token_by_token"),
        reward_at_the_wrong_index: (
            "scores_are_finite",
            "past_reward_is_no_credit", "reward_raises_its_own_advantage", "zero_off_the_mask",
            "rows_in_any_order", "holes_are_stepped_over", "padding_is_not_read",
        ),
        leak_a_gradient: (
            "no_gradient_of_its_own", "no_advantage_no_push", "gradient_is_the_slope",
            "gradient_leads_to_the_reference", "praise_raises_the_probability",
        ),
        mutate_an_input: ("inputs_unchanged", "scores_repeat"),
        output_off_the_mask: ("zero_off_the_mask",),
    }.items()
)  # fmt: skip


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
    for options in one.variants():
        for seed in range(3):
            columns = one.batch(seed)
            results = [(one.call(columns, **options), two.call(columns, **options))]
            if component.kind in LOSSES and set(WITH_GRADIENT) & set(component.needs):
                try:
                    theirs = two.gradient(columns, **options)
                except AssertionError:  # none is left
                    return True
                results.append((one.gradient(columns, **options), theirs))
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


def test_table_of_planted_bugs():
    print("\n" + render_table())
    missed = [
        (key, bug.name) for key in COMPONENTS for bug in BUGS if verdict(key, bug) == "MISSED"
    ]
    assert not missed
    for bug in BUGS:  # each is caught somewhere: no column is empty by accident
        assert {verdict(key, bug) for key in COMPONENTS} - {"-", "same"}, bug.name


# ---------------------------------------------------------------- every check can fail

BROKEN = []


def broken(kind, check, **extra):
    """Registers a component that `check` must find fault with."""

    def add(function):
        BROKEN.append((read_component(kind, function, "a test", **extra), check))
        return function

    return add


@broken("estimators", "documented")
def undocumented(rewards):
    return rewards


@broken("policy_losses", "documented")
def without_source(log_probs, advantages):
    """REINFORCE, by nobody."""
    return -log_probs * advantages


@broken("estimators", "defaults_work")
def picky(rewards, *, scale: float = 0.0):
    """Source: here."""
    raise RlzooError("scale must be set")


@broken("estimators", "finite_at_the_bounds")
def divides_by_an_option(rewards, *, scale: Annotated[float, Range(0)] = 1.0):
    """Source: here."""
    return rewards / scale


@broken("estimators", "finite_everywhere")
def mean_of_nothing(sequence_rewards, response_mask):
    """Source: here."""
    return sequence_rewards[:, None] * response_mask / response_mask.sum(-1, keepdim=True)


@broken("policy_losses", "finite_everywhere")
def gradient_of_a_root(log_probs, advantages, response_mask):
    """Finite itself; the slope of the root at 0 is not.  Source: here."""
    norm = (log_probs * response_mask).square().sum(-1, keepdim=True).sqrt()
    return -(log_probs + 0 * norm) * advantages


@broken("estimators", "deterministic")
def draws(rewards, response_mask):
    """Source: here."""
    return rewards + 1e-3 * torch.rand_like(rewards) * response_mask


@broken("estimators", "shape_dtype_device")
def always_double(rewards):
    """Source: here."""
    return rewards.double()


@broken("aggregations", "shape_dtype_device")
def one_weight_per_row(response_mask):
    """Source: here."""
    return response_mask.sum(-1)


@broken("estimators", "holes_are_stepped_over")
def next_token(rewards, response_mask):
    """The next position is not the next action.  Source: here."""
    return (rewards + torch.nn.functional.pad(rewards, (0, 1))[:, 1:]) * response_mask


@broken("aggregations", "padding_is_not_read", couples="batch")
def share_of_the_tensor(response_mask):
    """Source: here."""
    return response_mask / response_mask.numel()


@broken("estimators", "rows_in_any_order")
def contiguous_groups(sequence_rewards, response_mask, group_ids):
    """Takes each run of equal ids for a group.  Source: here."""
    run = torch.cat([torch.zeros(1), (group_ids[1:] != group_ids[:-1]).cumsum(0)]).long()
    return (sequence_rewards - group_mean(sequence_rewards, run))[:, None] * response_mask


@broken("estimators", "groups_by_any_name")
def groups_as_indices(sequence_rewards, response_mask, group_ids):
    """Source: here."""
    total = torch.zeros(100, dtype=sequence_rewards.dtype)
    total.index_add_(0, group_ids % 97, sequence_rewards)
    return (
        (sequence_rewards - total[group_ids % 97])[:, None]
        * response_mask
        / (1 + group_ids)[:, None]
    )


@broken("estimators", "groups_matter")
def asks_in_vain(sequence_rewards, response_mask, group_ids):
    """Source: here."""
    return sequence_rewards[:, None] * response_mask


@broken("estimators", "couples_as_declared")
def whitened(rewards, response_mask):
    """Couples the batch and does not say so.  Source: here."""
    return whiten(rewards, response_mask)


@broken("estimators", "couples_as_declared")
def whitened_groups(sequence_rewards, response_mask, group_ids):
    """Couples more than the group.  Source: here."""
    centered = sequence_rewards - group_mean(sequence_rewards, group_ids)
    return (centered / (centered.std(correction=0) + 1))[:, None] * response_mask


@broken("estimators", "equal_rewards_give_zeros")
def noise_from_rounding(sequence_rewards, response_mask, group_ids):
    """.1 + .2 is not .3.  Source: here."""
    centered = sequence_rewards - group_mean(sequence_rewards, group_ids)
    spread = group_std(sequence_rewards, group_ids)
    return (centered / (spread + 1e-9))[:, None] * response_mask


@broken("kl_penalties", "value_is_a_divergence")
def offset(log_probs, ref_log_probs):
    """Source: here."""
    return log_probs - ref_log_probs + 0.1


@broken("kl_penalties", "gradient_leads_to_the_reference")
def right_value_wrong_gradient(log_probs, ref_log_probs):
    """Never negative, and it drives the policy away.  Source: here."""
    gap = ref_log_probs - log_probs
    return (gap.expm1() - gap).detach() - (0.5 * gap.square() - 0.5 * gap.square().detach())


@broken("policy_losses", "finite_far_off_policy")
def unbounded_product(log_probs, old_log_probs, advantages, response_mask):
    """The product of a response's ratios, to the power of 10.  Source: here."""
    ratio = (10 * ((log_probs - old_log_probs) * response_mask).sum(-1, keepdim=True)).exp()
    return -ratio * advantages * response_mask


@broken("policy_losses", "rows_without_signal_leave_no_gradient", needs_signal=True)
def drawn_back(log_probs, old_log_probs, advantages):
    """Pulled back to where it was, wherever it has gone.  Source: here."""
    return (log_probs - old_log_probs).square() - log_probs * advantages


@broken("value_losses", "token_by_token")
def off_by_one(value_preds, returns):
    """Source: here."""
    return (value_preds - returns.roll(1, 1)).square()


@broken("aggregations", "empty_rows_do_not_count", couples="batch")
def mean_over_all_rows(response_mask):
    """Source: here."""
    length = response_mask.sum(-1, keepdim=True).clamp(min=1)
    return response_mask / length / len(response_mask)


@broken("columns", "example_is_like_the_column", shape="B", example=lambda draw, rows, steps: torch.ones(rows, steps))  # fmt: skip  # noqa: E501
def badly_shown(sequence_scores):
    """Source: here."""
    return sequence_scores


class Sound:
    """A task without fault: the next letter is right.

    Source: here.
    """

    def draw(self, split, n, generator):
        letters = torch.randint(97, 122, (n,), generator=generator).tolist()
        return [Example(chr(i), chr(i + 1), i) for i in letters]

    def score(self, response_tokens, answers, response_mask, terminated):
        scores = torch.zeros(response_mask.shape)
        for row, (tokens, answer) in enumerate(zip(response_tokens, answers, strict=True)):
            for t, token in enumerate(tokens):
                scores[row, t] = float(t == 0 and token == answer)
        return scores

    def is_correct(self, responses, answers):
        return torch.tensor([r == a for r, a in zip(responses, answers, strict=True)])

    def demonstrate(self, example, generator):
        return example.answer, example.prompt


@broken("tasks", "made_as_declared")
class Scoreless(Sound):
    """Source: here."""

    score = None


@broken("tasks", "draws_by_the_generator")
class OwnDice(Sound):
    """Source: here."""

    def draw(self, split, n, generator):
        return super().draw(split, n, None)


@broken("tasks", "scores_are_finite")
class Average(Sound):
    """Source: here."""

    def score(self, response_mask):
        return response_mask.sum(-1) / response_mask.sum(-1)


@broken("tasks", "scores_are_finite")
class Misplaced(Sound):
    """Pays one token late.  Source: here."""

    def score(self, response_tokens, answers, response_mask, terminated):
        return super().score(response_tokens, answers, response_mask, terminated).roll(1, 1)


@broken("tasks", "scores_repeat")
class Curve(Sound):
    """Graded on a curve.  Source: here."""

    def score(self, response_mask):
        return response_mask.sum(-1) - response_mask.sum(-1).cummax(0).values


@broken("tasks", "scores_are_causal")
class Early(Sound):
    """Pays the first token for the whole response.  Source: here."""

    def score(self, response_tokens, answers, response_mask, terminated):
        total = super().score(response_tokens, answers, response_mask, terminated).sum(-1)
        total = total * terminated
        return (
            torch.nn.functional.pad(total[:, None], (0, response_mask.shape[1] - 1)) * response_mask
        )


@broken("tasks", "padding_is_not_scored")
class Widths(Sound):
    """Source: here."""

    def score(self, response_mask):
        return response_mask.mean(-1)


@broken("tasks", "right_is_right")
class Backwards(Sound):
    """Source: here."""

    def is_correct(self, responses, answers):
        return ~super().is_correct(responses, answers)


@broken("tasks", "answers_row_by_row")
class Forgetful(Sound):
    """Answers a row by what the others said.  Source: here."""

    def respond(self, turns):
        return [turns[0][-1] if len(t) < 2 else None for t in turns]


@broken("loggers", "takes_what_a_run_gives")
class Fussy:
    """Knows only the names of the first step.  Source: here."""

    def __init__(self, path):
        self.names = None

    def log(self, metrics):
        self.names = self.names or list(metrics)
        assert self.names == list(metrics), "other metrics than before"

    def close(self):
        pass


@pytest.mark.parametrize(("component", "check"), BROKEN, ids=lambda x: getattr(x, "name", x))
def test_broken_components_are_found_out(component, check):
    results = {result.name: result for result in checks.run_checks(component, ZOO)}
    assert results[check].passed is False, results
    assert "\n" not in results[check].message


def test_every_check_is_seen_to_fail():
    seen = {check for _, check in BROKEN} | {name for bug in BUGS for name in bug.tells}
    assert {check.__name__ for kind in checks.CHECKS.values() for check in kind} == seen


def test_a_sound_task_passes_as_it_must():
    task = read_component("tasks", Sound, "a test")
    assert all(result.passed is not False for result in checks.run_checks(task, ZOO))


# ---------------------------------------------------------------- how it is used


def test_kl_value_and_gradient_are_told_apart():
    def found(name):
        results = checks.run_checks(ZOO.kl_penalties[name], ZOO)
        return [
            r.message for r in results if r.message.startswith(("value:", "gradient:")) and r.passed
        ]

    assert found("k1") == [
        "value: the reverse KL in expectation",
        "gradient: zero in expectation, no use as a loss",
    ]
    assert found("k2") == ["value: not the KL", "gradient: reverse KL"]
    assert found("k3") == ["value: the reverse KL in expectation", "gradient: forward KL"]


def test_names_cover_every_kind_that_has_them():
    assert [c.kind for c in checks.named("gpg", ZOO)] == ["estimators", "policy_losses"]
    with pytest.raises(RlzooError, match="did you mean 'grpo'"):
        checks.named("grpoo", ZOO)


def test_parametrize_names_component_and_check():
    def ids(what):
        return [case.id for case in checks.parametrize(what).args[1]]

    assert "estimator-gae-padding_is_not_read" in ids("gae")
    assert ids(["gae", ZOO.kl_penalties["k1"]]) == ids("gae") + ids(ZOO.kl_penalties["k1"])


def test_a_check_that_does_not_apply_is_skipped():
    cases = {case.id: case.values[0] for case in checks.parametrize("gae").args[1]}
    with pytest.raises(pytest.skip.Exception, match="needs no group_ids"):
        cases["estimator-gae-groups_by_any_name"]()


def test_a_failing_check_names_component_and_file():
    component = read_component("estimators", always_double, "a test")
    cases = {case.id: case.values[0] for case in checks.parametrize(component).args[1]}
    with pytest.raises(
        pytest.fail.Exception, match=r"'always_double' \(.*test_checks.py:\d+\): its"
    ):
        cases["estimator-always_double-shape_dtype_device"]()
