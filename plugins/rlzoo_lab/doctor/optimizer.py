"""Rules about weights that cannot learn: they are not trained, or a setting of AdamW holds or
destroys them, by arithmetic."""

import math
from collections.abc import Iterator
from statistics import median

from rlzoo.runs import metrics as names
from rlzoo_lab.data.record import Record
from rlzoo_lab.doctor.rule import cause
from rlzoo_lab.doctor.series import Finding, course, every, late, learning, rounded
from rlzoo_lab.doctor.suspects import against_default, default


@cause()
def actor_not_trained(run: Record) -> Finding | None:
    """The critic's warm-up takes most or all of the run."""
    trained, warmup = len(run.series(names.PG_LOSS)), run.key("train.critic_warmup", 0)
    if not run.steps or not warmup or trained > 0.4 * len(run.steps):
        return None
    return Finding(
        "problem",
        f"train.critic_warmup={warmup} trains only the critic in all but {trained} of the "
        f"{len(run.steps)} steps: the policy is hardly updated.",
        f"Lower train.critic_warmup to a tenth of the run: {max(1, len(run.steps) // 10)}.",
        {"critic_warmup": warmup, "steps": len(run.steps), "trained": trained},
    )


@cause("actor/lr", names.REWARD, least=3)
def optimizer_setting_is_harmful(run: Record) -> Finding | None:
    """By arithmetic, a setting of the optimizer holds the weights, or destroys them."""
    key, why, advice = next(_by_arithmetic(run, "actor"), ("", "", ""))
    if not key or (run.solved and key not in ("actor.lr", "actor.weight_decay")):
        return None
    return Finding(
        "warning" if learning(run) else "problem",
        f"{against_default(run, key)}: {why}. The reward went from {course(run)}.",
        advice,
        {"optimizer_steps": _optimizer_steps(run), "highest_rate": max(run.series("actor/lr"))},
    )


@cause("critic/lr", names.EXPLAINED_VARIANCE, least=3)
def critic_does_not_learn(run: Record) -> Finding | None:
    """By arithmetic, a setting holds the critic's weights; or its loss does not reach them."""
    top, explained = max(run.series("critic/lr")), late(run, names.EXPLAINED_VARIANCE)
    leans = 1 - late(run, names.MC_CORR, 1.0) ** 2
    key, why, advice = next(_by_arithmetic(run, "critic"), ("", "", ""))
    # Another trainer's model may be a million times as large.
    if not key and not run.trainer and top < 0.03 * default("critic.lr") and explained < 0.05:
        key, advice = "critic.lr", "Use the default of critic.lr."
        why = f"{len(run.steps)} steps at this rate have no effect"
    if not key or (leans < 0.2 and learning(run) and top > 0 and key != "value_loss.name"):
        return None  # harmless here
    share = f", and {leans:.0%} of the advantages' variance comes from it"
    return Finding(
        "problem",
        f"{against_default(run, key)}: {why}. The critic explains {explained:.2f} of the returns' "
        f"variance{share if run.has(names.MC_CORR) else ''}.",
        advice,
        {"explained_variance": explained, "leans": leans},
    )


def _optimizer_steps(run: Record) -> int:
    """At least this many steps of the optimizer: a trainer may not record how many there are."""
    each = (run.known("train.epochs") or 1) * (run.known("train.minibatches") or 1)
    return len(run.series(names.REWARD)) * every(run) * each


def _by_arithmetic(run: Record, part: str) -> Iterator[tuple[str, str, str]]:
    """(key, what its value does, advice) of settings that are harmful by themselves.

    part: whose weights, `actor` or `critic`.
    """
    yield from _of_the_rate(run, part)
    norms = run.series(f"{part}/grad_norm")
    if part == "critic" and norms and max(norms) == 0 and late(run, "critic/vf_loss", 1.0):
        yield (
            "value_loss.name",
            "the critic's gradient is exactly 0 although its loss is not, perhaps because of "
            ".detach() or .item()",
            "Check the value loss (`rlzoo check NAME`).",
        )
    if run.known(f"{part}.optimizer", "adamw") == "adamw":  # others scale their steps otherwise
        yield from _of_adamw(run, part)
    if part == "actor":
        yield from _of_the_weights(run)


def _of_the_rate(run: Record, part: str) -> Iterator[tuple[str, str, str]]:
    rates, lr, warmup = (
        run.series(f"{part}/lr"),
        run.known(f"{part}.lr"),
        run.known(f"{part}.lr_warmup"),
    )
    zero, top = sum(rate == 0 for rate in rates), max(rates)
    if zero > len(rates) / 2:
        if rounded(run):
            run.key(f"{part}.lr")  # else 0 may be any small number
        key = f"{part}.lr_schedule" if lr else f"{part}.lr"
        yield key, f"the learning rate is 0 in {zero} of {len(rates)} steps", f"Set {key}."
    if lr and warmup and top < 0.5 * lr and warmup >= len(run.steps) and run.summary:
        yield (
            f"{part}.lr_warmup",
            f"the learning rate never exceeds {top:.2g} in {len(run.steps)} steps, though "
            f"{part}.lr={lr:g}",
            f"Set {part}.lr_warmup to at most a tenth of the run: {max(1, len(run.steps) // 10)}.",
        )


def _of_adamw(run: Record, part: str) -> Iterator[tuple[str, str, str]]:
    rates, norms, steps = (
        run.series(f"{part}/lr"),
        run.series(f"{part}/grad_norm"),
        _optimizer_steps(run),
    )
    lr, eps, limit, decay, betas = (
        run.known(f"{part}.{key}")
        for key in ("lr", "eps", "max_grad_norm", "weight_decay", "betas")
    )
    total = sum(rates) * steps / len(rates)
    norm = min(median(norms), limit or math.inf) if norms else math.inf
    # A rate of 1e-7 is usual for large models, and a run may just have begun to warm up.
    if 0 < total < 2e-6 and len(rates) >= 12 and (lr or max(rates)) < 1e-7 and not learning(run):
        yield (
            f"{part}.lr",
            f"AdamW moves a weight by at most about {total:.1g} in all {len(rates)} steps",
            f"Set {part}.lr.",
        )
    if limit and eps and norms and limit < 0.1 * median(norms) and norm < 300 * eps:
        yield (
            f"{part}.max_grad_norm",
            f"gradients of norm {median(norms):.2g} (median) are clipped to {limit:.2g}, which is "
            f"too small compared with AdamW's eps={eps:g}",
            f"Leave {part}.max_grad_norm and {part}.eps at their defaults.",
        )
    # The most for an entry: a model has more than 10,000 weights.
    if eps and norms and eps >= max(1e-5, norm / 100):
        yield (
            f"{part}.eps",
            f"AdamW divides by sqrt(v) + eps, and the gradient (norm {norm:.2g}) has entries below "
            f"{norm / 100:.1g}, so each step is at least {eps * 100 / max(norm, 1e-30):.0f} times "
            f"shorter than {part}.lr",
            f"Set {part}.eps={default(f'{part}.eps'):g}.",
        )
    if decay and total * decay > 0.2:
        yield (
            f"{part}.weight_decay",
            "AdamW removes lr x weight_decay of each weight at each optimizer step, which is a "
            f"factor of exp(-{total * decay:.2g}) over this run",
            f"Set {part}.weight_decay=0.",
        )
    memory = betas[0] if isinstance(betas, list) else 0.0
    if memory > default(f"{part}.betas")[0] and steps * (1 - memory) < 2:
        yield (
            f"{part}.betas",
            f"AdamW averages gradients over about {1 / max(1 - memory, 1e-9):.3g} optimizer "
            f"steps, but the run has only {steps}, so the weights follow the first batches",
            f"Leave {part}.betas at its default.",
        )


def _of_the_weights(run: Record) -> Iterator[tuple[str, str, str]]:
    rank, alpha = run.known("model.lora.rank"), run.known("model.lora.alpha")
    if rank and alpha is not None and alpha < 0.2 * rank:
        yield (
            "model.lora.alpha",
            f"with model.lora.rank={rank} the adapter and its gradients are scaled by "
            f"{alpha / rank:.2g}",
            "Set model.lora.alpha to once or twice model.lora.rank.",
        )
    dtype, top = run.known("model.dtype"), max(run.series("actor/lr"))
    spacing = {"bfloat16": 2**9, "float16": 2**12}.get(dtype or "", 0)
    if spacing and not rank and 0 < top * spacing <= 1 and len(run.steps) >= 6:
        yield (
            "model.dtype",
            f"the trained weights are stored as {dtype}, and a step of {top:g} is lost in rounding "
            f"for each weight above {top * spacing:.2g}",
            "Set model.dtype=float32 model.autocast=bfloat16: this computes in half precision and "
            "keeps the weights in float32.",
        )
