"""Rules about a policy that does not move: it is not trained, a setting prevents it, or it has no
gradient."""

import math
from statistics import median

from rlzoo.runs import metrics as names
from rlzoo_lab.doctor.rule import SHORTEST_TREND, cause, symptom
from rlzoo_lab.doctor.series import (
    Finding,
    course,
    every,
    late,
    learning,
    movement,
    right,
    rounded,
    updates,
    worse,
)
from rlzoo_lab.doctor.suspects import against_default, compare_first, default, unknown
from rlzoo_lab.records.record import Record


@cause()
def actor_not_trained(run: Record) -> Finding | None:
    """The critic's warm-up takes most or all of the run."""
    trained, warmup = len(run.series(names.PG_LOSS)), run.key("train.critic_warmup", 0)
    if not run.steps or not warmup or trained > 0.4 * len(run.steps):
        return None
    return Finding(
        "problem",
        f"train.critic_warmup={warmup} trains only the critic in all but {trained} of the "
        f"{len(run.steps)} steps: the policy "
        + ("was hardly updated." if trained else "was never updated."),
        f"Lower train.critic_warmup to a tenth of the run: {max(1, len(run.steps) // 10)}.",
        {"critic_warmup": warmup, "steps": len(run.steps), "trained": trained},
    )


@cause("actor/lr")
def learning_rate_zero(run: Record) -> Finding | None:
    """The policy's learning rate is 0 for most of the run, or too small to move any weight."""
    rates = run.series("actor/lr")
    zero, reach = sum(rate == 0 for rate in rates), sum(rates) * every(run)
    tiny = 0 < reach < 2e-6 and not (run.has(names.PPO_KL) or learning(run))
    # A rate of 1e-7 is usual for large models, and a run may just have begun to warm up.
    tiny = tiny and len(rates) >= 12 and run.known("actor.lr", max(rates)) < 1e-7
    tiny = tiny and (reach := reach * updates(run)) < 2e-6
    if zero <= len(rates) / 2 and not tiny:
        return None
    if rounded(run):
        run.key("actor.lr")  # else 0 may be any small number
    key = "actor.lr_schedule" if run.known("actor.lr", 0) and not tiny else "actor.lr"
    return Finding(
        "problem",
        (f"{against_default(run, key)}: " if key in run.recipe else "")
        + (
            f"AdamW moves a weight by at most about {reach:.1g} in all {len(rates)} steps"
            if tiny
            else f"actor/lr is 0 in {zero} of {len(rates)} steps"
        )
        + ", and the policy cannot change.",
        f"Set {key}.",
        {"zero_steps": zero, "of": len(rates)},
    )


def _named(run: Record, section: str) -> str:
    """`policy_loss.name=ppo_clip`, as far as it is known."""
    name = run.known(f"{section}.name")
    return f"{section}.name={name}" if name else section.replace("_", " ")


def _why_still(run: Record) -> tuple[str, str, str]:
    """(the key or component that holds the policy; why; advice)."""
    rate = min(late(run, "actor/lr"), run.known("actor.lr", math.inf))
    norm = median(run.series("actor/grad_norm") or [0.0])
    limit, eps = run.known("actor.max_grad_norm") or norm, run.known("actor.eps", 0.0)
    warmup, rank = run.known("actor.lr_warmup", 0), run.known("model.lora.rank", 0)
    pull, cut = run.series(names.PULL_CORR), limit < 0.1 * norm
    swallowed = 0 < min(norm, limit) < 300 * eps
    against = against_default
    if warmup and rate < 0.3 * run.known("actor.lr", 0.0):
        return (
            against(run, "actor.lr_warmup"),
            f"the learning rate reached only {rate:.2g} by the end",
            f"Set actor.lr_warmup to a tenth of the run: {max(1, len(run.steps) // 10)}.",
        )
    if norm == 0 and run.has("actor/grad_norm"):
        return (
            _named(run, "policy_loss"),
            "its gradient is exactly 0: the loss is detached from the weights, or no weight is "
            "trained",
            "Check the loss (`rlzoo check NAME`) and which weights are trained "
            "(model.lora.targets). Changing the learning rate does not help.",
        )
    if rank and (scale := run.known("model.lora.alpha", 16.0) / rank) < 0.2:
        return (
            against(run, "model.lora.alpha"),
            f"with model.lora.rank={rank} the adapter and its gradients (norm {norm:.2g}) are "
            f"scaled by {scale:.2g}",
            "Set model.lora.alpha to once or twice model.lora.rank.",
        )
    if cut and swallowed:
        both = f" and {against(run, 'actor.eps')}" if eps > 10 * default("actor.eps") else ""
        return (
            against(run, "actor.max_grad_norm") + both,
            f"gradients of norm {norm:.2g} (median) are clipped to {limit:.2g}, which is too "
            f"small compared with AdamW's eps={eps:g}",
            f"Leave {'both at their defaults' if both else 'actor.max_grad_norm at its default'}.",
        )
    if eps >= 1e-4 and swallowed:
        return (
            against(run, "actor.eps"),
            f"AdamW divides by it, so gradients of norm {norm:.2g} make almost no step",
            "Leave actor.eps at its default.",
        )
    if run.known("model.dtype") in ("bfloat16", "float16") and not rank:
        return (
            against(run, "model.dtype"),
            "optimizer steps of this size are lost when weights of this type are rounded",
            "Set model.dtype=float32 (model.autocast=bfloat16 then computes in half precision).",
        )
    if swallowed or 0 < norm < 5e-3:
        return (
            "The loss is too small",
            f"gradients have norm {norm:.1g}, too small compared with AdamW's eps or with a KL or "
            f"entropy term: {_named(run, 'policy_loss')}, "
            f"{_named(run, 'aggregation')} or the advantages (standard "
            f"deviation {late(run, 'raw_advantages/std', 0.0):.2g}) make it small." + unknown(run),
            compare_first(run),
        )
    spent = f"{len(run.steps) * every(run)} steps at this rate have no effect"
    if rate < 0.3 * default("actor.lr") and (not pull or median(pull) > 0.3):
        return (
            against(run, "actor.lr"),
            spent,
            "Raise actor.lr, tenfold at a time, until actor/ppo_kl is about 0.001 to 0.01.",
        )
    return "No single setting explains this", f"{spent}.{unknown(run)}", compare_first(run)


@symptom(names.PPO_KL, "actor/lr", least=3)
def policy_does_not_move(run: Record) -> Finding | None:
    """After all updates the policy is unchanged."""
    moved = movement(run)
    same = len({(right(run, i), e.get(names.SCORE)) for i, e in enumerate(run.evaluations)}) == 1
    changed = learning(run) or worse(run)
    if moved is None:  # a hard set is at 0 for as long as nothing of it is solved
        some = same and right(run, 0) not in (None, 0.0, 1.0)
        still = some and not changed and len(run.evaluations) > 1 + bool(run.trainer)
    else:
        still = moved < 3e-4
        if run.has(names.REF_KL) and not changed:
            still = still or abs(late(run, names.REF_KL)) < 2e-3
    varies = [max(run.series(n), default=1.0) for n in (names.SCORE_STD, "raw_advantages/std")]
    if not still or min(varies) < 1e-8 or len(run.steps) < 5:  # without a signal it should not move
        return None
    if rounded(run):  # a KL of 0 may be any small number
        return None
    what, why, advice = _why_still(run)
    norm = median(run.series("actor/grad_norm") or [0.0])
    return Finding(
        "problem",
        f"{what}: the policy {'hardly moves' if moved and moved >= 3e-4 else 'does not move'}, "
        f"because {why.removesuffix('.')}. In {len(run.steps)} steps "
        + (f"it moved {moved:.1g} nats per token" if moved is not None else "its KL is unknown")
        + (", and all evaluations are identical." if same else "."),
        advice,
        {"rate": late(run, "actor/lr"), "grad_norm": norm}
        | ({} if moved is None else {"moved": moved}),
    )


@cause("actor/lr", names.REWARD, least=3)
def weight_decay_eats_the_policy(run: Record) -> Finding | None:
    """AdamW's weight decay shrinks the weights considerably."""
    decay = run.key("actor.weight_decay", 0.0)
    shrunk = sum(run.series("actor/lr")) * every(run) * decay * updates(run)
    if shrunk < 0.2:
        return None
    return Finding(
        "problem",
        f"{against_default(run, 'actor.weight_decay')}: AdamW removes lr x weight_decay of each "
        f"weight at each optimizer step, which is a factor of exp(-{shrunk:.2g}) over this run. "
        f"Entropy went from {course(run, names.ENTROPY, 2)} nats, and the reward "
        f"went from {course(run)}.",
        "Set actor.weight_decay=0.",
        {"shrunk": shrunk},
    )


@cause("actor/lr", names.REWARD, least=3)
def momentum_outlasts_the_run(run: Record) -> Finding | None:
    """AdamW averages gradients over more optimizer steps than the run has."""
    betas = run.key("actor.betas")
    usual = default("actor.betas")
    steps = updates(run) * len(run.series("actor/lr")) * every(run)
    if not isinstance(betas, list) or not betas or betas[0] <= usual[0]:
        return None
    memory = 1 / max(1 - betas[0], 1e-9)
    if memory < 0.5 * steps or run.solved:
        return None
    return Finding(
        "warning" if learning(run) else "problem",
        f"{against_default(run, 'actor.betas')}: AdamW's momentum averages gradients over about "
        f"{memory:.3g} optimizer steps, but the run has only {steps}. Old gradients outweigh new "
        f"ones, so the policy follows its first batches. The reward went from {course(run)}.",
        "Leave actor.betas at its default.",
        {"memory": memory, "steps": steps},
    )


@cause("actor/lr", names.REWARD, least=SHORTEST_TREND)
def steps_are_rounded_away(run: Record) -> Finding | None:
    """Weights in half precision lose optimizer steps that are smaller than their spacing."""
    dtype, rate = run.key("model.dtype"), max(run.series("actor/lr"))
    if dtype not in ("bfloat16", "float16") or run.key("model.lora.rank", 0) or run.solved:
        return None
    weight = rate * 2 ** (9 if dtype == "bfloat16" else 12)
    if weight > 1:
        return None
    return Finding(
        "warning",
        f"{against_default(run, 'model.dtype')}: the trained weights are stored as {dtype}. A "
        f"step of actor.lr={rate:g} is lost in rounding for each weight above {weight:.2g}. The "
        f"reward went from {course(run)}.",
        "Set model.dtype=float32 model.autocast=bfloat16: this computes in half precision and "
        "keeps the weights in float32.",
        {"weight": weight, "rate": rate},
    )


@cause("actor/lr", names.REWARD)
def rate_never_reached(run: Record) -> Finding | None:
    """The learning rate warms up over more steps than the run has."""
    rate, top, steps = run.key("actor.lr", 0.0), max(run.series("actor/lr")), len(run.steps)
    warmup = run.key("actor.lr_warmup", 0)
    if not 0 < top < 0.5 * rate or warmup < steps or not run.summary:
        return None
    return Finding(
        "warning" if learning(run) else "problem",
        f"{against_default(run, 'actor.lr_warmup')}: the learning rate never exceeds {top:.2g} in "
        f"{steps} steps, though actor.lr={rate:g}. The reward went from {course(run)}.",
        f"Set actor.lr_warmup to at most a tenth of the run: {max(1, steps // 10)}.",
        {"highest": top, "lr": rate, "steps": steps},
    )


@cause("actor/grad_norm", names.REWARD)
def epsilon_shortens_steps(run: Record) -> Finding | None:
    """AdamW divides by sqrt(v) + eps: an eps above the gradient's entries shortens every step."""
    eps = run.key("actor.eps", 0.0)
    norm = min(median(run.series("actor/grad_norm")), run.key("actor.max_grad_norm") or math.inf)
    typical = norm / 100  # of an entry, at most: a model has more than 10,000
    if eps < 1e-5 or eps < typical:
        return None
    return Finding(
        "warning" if learning(run) else "problem",
        f"{against_default(run, 'actor.eps')}: AdamW divides by sqrt(v) + eps, and the gradient "
        f"(norm {norm:.2g}) has entries below {typical:.1g}, so each step is at least "
        f"{eps / typical:.0f} times shorter than actor.lr. The reward went from {course(run)}.",
        f"Set actor.eps={default('actor.eps'):g}.",
        {"eps": eps, "grad_norm": norm},
    )


@cause("actor/lr", names.REWARD, least=12)
def rate_ends_early(run: Record) -> Finding | None:
    """The learning-rate schedule ends long before the run."""
    rates = run.series("actor/lr")
    top = max(rates)
    done = max((i + 1 for i, rate in enumerate(rates) if rate >= 0.05 * top), default=0)
    if not top or done > 0.6 * len(rates) or run.solved:
        return None
    return Finding(
        "warning" if learning(run) else "problem",
        f"{against_default(run, 'actor.lr_schedule')}: after step {done} of {len(rates)} the "
        f"learning rate is below 5% of its highest ({top:.2g}), and the policy learns nothing in "
        f"the rest of the run. The reward went from {course(run)}.",
        "Make the schedule as long as the run (actor.lr_schedule, train.steps).",
        {"done": done, "steps": len(rates)},
    )
