"""Bugs to plant into shipped components, each with the checks of the kit that may tell.

A bug wraps the inputs or the output of a shipped function. It is planted where a component has the
organ for it: `plant` gives None elsewhere.
"""

import dataclasses
from collections import namedtuple
from functools import wraps

import torch

from helpers.zoo import ZOO
from rlzoo.ops import collapse, expand, next_action
from rlzoo.plugin.border import needs_of
from rlzoo.plugin.columns import WITH_GRADIENT
from rlzoo_lab.kit import checks
from rlzoo_lab.kit.checks import tasks
from rlzoo_lab.kit.checks.subject import Subject

LOSSES = ("policy_losses", "value_losses", "kl_penalties")
PER_TOKEN = ("estimators", "aggregations", *LOSSES)
FUNCTIONS = (*PER_TOKEN, "columns", "rewards")


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


def text_index_for_column(c):
    """The k-th text of `response_tokens` is put at column k, observations or not."""
    if "response_tokens" not in c.needs or c.kind not in FUNCTIONS:
        return None

    def at_the_front(x):
        return {**x, "response_mask": collapse(torch.ones_like(x["response_mask"]),
                                               x["response_mask"])}  # fmt: skip

    def off(out, x):
        return out * x["response_mask"]

    front = rewire(c, at_the_front)
    return remake(dataclasses.replace(c, function=front.function), off)


def kink_at_ratio_one(c):
    """The size of the log-ratio beside the loss. Where policy and data are compared."""
    other = "ref_log_probs" if c.kind == "kl_penalties" else "old_log_probs"
    if c.kind not in ("kl_penalties", "policy_losses") or not {"log_probs", other} <= {*c.needs}:
        return None
    return remake(c, lambda out, x: out + (x["log_probs"] - x[other]).abs())


def single_precision_inside(c):
    """What carries no gradient goes through float32. In losses."""
    if c.kind not in LOSSES:
        return None

    def rounded(x):
        return {n: v.float().to(v) if torch.is_tensor(v) and n not in WITH_GRADIENT else v
                for n, v in x.items()}  # fmt: skip

    return rewire(c, rounded)


DIRECTIONS = (
    "reward_raises_its_own_advantage", "teacher_raises_what_it_prefers", "value_is_a_divergence",
    "gradient_leads_to_the_reference", "praise_raises_the_probability",
    "pushes_towards_the_target", "weights_are_weights",
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
        shift_values_by_one: ("exact_values_leave_nothing", "pushes_towards_the_target"),
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
        text_index_for_column: ("token_texts_belong_to_actions",),
        kink_at_ratio_one: ("rounding_moves_no_gradient",),
        single_precision_inside: ("float64_is_kept",),
    }.items()
)  # fmt: skip
