"""Checks of policy losses and value losses: the direction of their gradients, and when these are
0."""

import torch
from torch import Tensor

from rlzoo.mdp.batch import take
from rlzoo_lab.kit.checks import made_up
from rlzoo_lab.kit.checks.functions import float64_is_kept, rows_without_an_action_count_nothing
from rlzoo_lab.kit.checks.slope import backward_is_the_slope, gradient_is_the_slope
from rlzoo_lab.kit.checks.subject import NotApplicable, Subject, same, small


def praise_raises_the_probability(s: Subject) -> str:
    """On the policy's own data, a positive advantage raises log_probs, and a negative one less."""
    note = ""
    for _ in s.variants():
        signs, pushed = pushes(s, 1.0)
        _, opposite = pushes(s, -1.0)
        praise = torch.where(signs > 0, pushed, opposite)[signs != 0]
        blame = torch.where(signs > 0, opposite, pushed)[signs != 0]
        gap = praise - blame
        assert praise.min() >= -1e-12, "a positive advantage lowers a log-prob: sign flipped?"
        assert praise.max() > 1e-12, "a positive advantage has no effect"
        assert gap.min() >= -1e-12, "a negative advantage raises log-probs more than a positive one"
        assert gap.max() > 1e-12, "does not depend on the advantage"
        if not s.options and torch.allclose(pushed, signs):
            note = "its gradient at ratio 1 is REINFORCE's"
        elif not s.options and not blame.any():
            note = "at ratio 1, a negative advantage has no effect"
    return note


def no_advantage_no_push(s: Subject) -> None:
    """On the policy's own data, an advantage of 0 gives no gradient: the weights are detached."""
    if "sequence_scores" in s.needs:
        raise NotApplicable("learns from the scores as well as from advantages")
    for _ in s.variants():
        signs, pushed = pushes(s, 10.0)
        if bool((pushed[signs < 0] > 1e-12).any()):
            raise NotApplicable("raises log-probs for every advantage, only by different amounts")
        fault = "has a gradient of {} at advantage 0: is a target not detached?"
        small(pushes(s, 0.0)[1], 1e-9, fault)


def follows_the_reference(s: Subject) -> None:
    """At advantage 0, a token that is more likely under the reference is not pushed down for it."""
    s.require("ref_log_probs")
    if {"sequence_scores", "full_kl"} & {*s.needs}:
        raise NotApplicable("uses the log-ratio to the reference for more than a KL")
    for columns in s.trials():
        columns["advantages"] = columns["raw_advantages"] = 0 * columns["advantages"]
        columns["log_probs"] = columns["sampler_log_probs"] = columns["old_log_probs"]
        signs = torch.where(torch.arange(len(columns["group_ids"])) % 2 == 0, 0.5, -0.5)[:, None]
        towards, away = (
            -s.gradient({**columns, "ref_log_probs": columns["log_probs"] + way * signs})[
                "log_probs"
            ]
            for way in (1, -1)
        )
        pull = float(((towards - away) * signs * columns["response_mask"]).sum())
        assert pull > -1e-9, "its gradient leads away from the reference: is the KL's sign flipped?"


def rows_without_signal_can_be_left_out(s: Subject) -> None:
    """Declared with needs_signal=True: a row whose advantages are all 0 has no gradient for any
    policy, and loss, gradient and metrics of a row do not depend on such rows. The trainer leaves
    them out, or processes them separately."""
    if not s.component.needs_signal:
        raise NotApplicable("not declared, so rlzoo never leaves such rows out")
    for columns in s.trials():
        silent = torch.arange(len(columns["group_ids"])) % 2 == 0
        columns["advantages"] = torch.where(silent[:, None], 0, columns["advantages"])
        gradient = s.gradient(columns)["log_probs"]
        assert not bool(gradient[silent].any()), "has a gradient in a row without signal"
        whole = s.call(columns) | {"gradient": gradient}
        for part in (silent, ~silent):
            few = take(columns, part.nonzero()[:, 0])
            alone = s.call(few) | {"gradient": s.gradient(few)["log_probs"]}
            want = {name: x[part] for name, x in whole.items()}
            same(alone, want, "depends on rows that are processed separately")


def rounding_moves_no_gradient(s: Subject) -> None:
    """At ratio 1, a change of 1e-7 in a log-probability changes the gradient by about as little.
    Otherwise the split into micro-batches, which affects rounding, would decide the first step."""
    for columns in s.trials():
        columns["sampler_log_probs"] = columns["old_log_probs"]
        rounding_is_harmless(s, columns, "old_log_probs")


def rounding_is_harmless(s: Subject, columns: made_up.Columns, other: str) -> None:
    """The gradient in log_probs hardly changes where they differ from `other` by 1e-7."""
    exact = s.gradient({**columns, "log_probs": columns[other]})["log_probs"]
    noise = torch.where(torch.rand(exact.shape, generator=torch.Generator().manual_seed(0)) < 0.5,
                        -1e-7, 1e-7) * columns["response_mask"]  # fmt: skip
    off = {**columns, "log_probs": columns[other] + noise}
    fault = f"rounding changes its gradient at {other} by {{}}: a kink?"
    small(s.gradient(off)["log_probs"] - exact, 1e-3, fault)


def finite_far_off_policy(s: Subject) -> None:
    """Value and gradient are finite if policy and data differ by e^+-8 at every token."""
    for _ in s.variants():
        for gap in (8.0, -8.0):
            columns = s.batch()
            mask = columns["response_mask"]
            columns["log_probs"] = columns["old_log_probs"] + gap * mask
            columns["sampler_log_probs"] = columns["old_log_probs"]
            loss = s.call(columns)["loss"]
            gradient = s.gradient(columns)["log_probs"]
            ok = torch.isfinite(loss).all() and torch.isfinite(gradient).all()
            assert bool(ok), f"not finite at log-ratio {gap:g}"


def brakes_along_the_advantage(s: Subject) -> None:
    """A loss that stops where the policy moved against the advantage stops where it moved along it,
    too: `max` in place of PPO's `min` does not."""
    for _ in s.variants():
        columns = s.batch()
        mask = columns["response_mask"].bool()
        even = torch.arange(len(mask)) % 2 == 0
        signs = torch.where(even, 1.0, -1.0)[:, None] * mask
        columns["advantages"] = columns["raw_advantages"] = signs
        columns["sampler_log_probs"] = columns["ref_log_probs"] = columns["old_log_probs"]
        push = {}
        for way in (1, -1):  # along, against
            columns["log_probs"] = columns["old_log_probs"] + way * signs
            push[way] = s.gradient(columns)["log_probs"][mask].abs()
        fault = "stops where the policy moved against the advantage, and not along it: max for min?"
        assert push[-1].max() > 1e-9 or push[1].min() < 1e-9, fault


def on_own_data(s: Subject, advantages: Tensor) -> dict[str, Tensor]:
    """The gradient, (B, T) for each column, on the policy's own data: the ratio is 1, and the
    reference is the policy."""
    assert "log_probs" in s.needs, "does not use log_probs, so it cannot train the policy"
    columns = s.batch()
    for name in ("log_probs", "sampler_log_probs", "ref_log_probs"):
        columns[name] = columns["old_log_probs"]
    columns["full_kl"] = torch.zeros_like(columns["full_kl"])
    columns["advantages"] = columns["raw_advantages"] = advantages
    return s.gradient(columns)


def pushes(s: Subject, size: float) -> tuple[Tensor, Tensor]:
    """Signs (B, T), and what gradient descent does to log_probs (B, T) at advantages size * signs.
    Every other response is good, for losses that compare the responses of a group."""
    mask = s.batch()["response_mask"]
    signs = torch.where(torch.arange(len(mask)) % 2 == 0, 1.0, -1.0)[:, None] * mask
    return signs, -on_own_data(s, size * signs)["log_probs"]


def is_reinforce(s: Subject) -> bool:
    """Whether only log_probs are pushed, in proportion to the advantages, whatever they are."""
    a = s.batch()["advantages"]
    gradients = on_own_data(s, a)
    got = -gradients.pop("log_probs")
    scale = (a * got).sum() / (a * a).sum()
    alike = torch.allclose(got, scale * a, rtol=1e-9, atol=1e-12)
    return bool(scale > 0) and alike and not any(x.any() for x in gradients.values())


def pushes_towards_the_target(s: Subject) -> None:
    """Descent moves the value towards `returns`, never away, and the gradient is 0 there."""
    for columns in s.trials():
        mask = columns["response_mask"].bool()
        if "value_logits" in s.needs:
            _bins_reach_the_target(s, columns)
            continue
        error = columns["returns"] - columns["value_preds"]
        push = -s.gradient(columns)["value_preds"]
        fault = "moves away from the target where the value has changed: compared with the old one?"
        assert (push * error)[mask].min() >= -1e-12, fault
        columns["values"] = columns["value_preds"]
        moved = -s.gradient(columns)["value_preds"]
        clear = mask & (error.abs() > 1e-3)
        fault = "moves away from the target, or not at all: wrong sign or gradient leak?"
        assert (moved * error)[clear].min() > 0, fault
        ahead = 0.5 * error.sign() * mask
        columns["values"], columns["returns"] = torch.zeros_like(error), 2 * ahead
        along, against = (s.gradient({**columns, "value_preds": x})["value_preds"][mask]
                          for x in (ahead, -ahead))  # fmt: skip
        fault = "stops where the value moved away from the target, not towards it: min for max?"
        assert against.any() or not along.any(), fault
        columns["values"] = columns["value_preds"] = columns["returns"]
        small(s.gradient(columns)["value_preds"], 1e-9, "has a gradient of {} at its target")


def _bins_reach_the_target(s: Subject, columns: made_up.Columns) -> None:
    """A critic with bins, trained on one batch: its mean ends within a bin of the target."""
    mask, support = columns["response_mask"].bool(), columns["value_support"]
    bin_width = float(support[1] - support[0])
    logits = columns["value_logits"]
    for _ in range(60):
        columns = {**columns, "value_logits": logits}
        logits = logits - 2.0 * s.gradient(columns)["value_logits"]
    value = logits.softmax(-1) @ support
    fault = f"after training, its value differs from the target by {{}} (bins of {bin_width:.3g})"
    small((value - columns["returns"])[mask], bin_width, fault)


POLICY = (
    praise_raises_the_probability,
    no_advantage_no_push,
    follows_the_reference,
    rows_without_signal_can_be_left_out,
    rounding_moves_no_gradient,
    backward_is_the_slope,
    float64_is_kept,
    rows_without_an_action_count_nothing,
    finite_far_off_policy,
    brakes_along_the_advantage,
)

VALUE = (pushes_towards_the_target, gradient_is_the_slope, float64_is_kept)
