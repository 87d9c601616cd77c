"""Rules about settings: a key whose value is harmful, by arithmetic or by the metrics that show it.

A value is reported only if its effect is visible in the metrics.
"""

import math
from collections.abc import Iterator
from statistics import fmean, median

from rlzoo.runs import metrics as names
from rlzoo_lab.data.record import Record
from rlzoo_lab.doctor.rule import SHORTEST_TREND, cause, symptom
from rlzoo_lab.doctor.series import (
    Finding,
    early,
    ends,
    late,
    learning,
    optimizer_steps,
    rises,
    rose_and_fell,
    rounded,
    severity,
    worse,
)
from rlzoo_lab.doctor.suspects import against_default, compare_first, default, foreign, unknown


@cause()
def actor_not_trained(run: Record) -> Finding | None:
    """The critic's warm-up takes most or all of the run."""
    trained, warmup = len(run.series("actor/pg_loss")), run.key("train.critic_warmup", 0)
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
    key, why = next(_by_arithmetic(run, "actor"), ("", ""))
    if not key or (run.solved and key not in ("actor.lr", "actor.weight_decay")):
        return None
    return Finding(
        severity(run),
        f"{against_default(run, key)}: {why}.",
        _reset(run, key),
        {"optimizer_steps": optimizer_steps(run), "highest_rate": max(run.series("actor/lr"))},
    )


@cause("critic/lr", names.EXPLAINED_VARIANCE, least=3)
def critic_does_not_learn(run: Record) -> Finding | None:
    """By arithmetic, a setting holds the critic's weights; or its loss does not reach them."""
    top, explained = max(run.series("critic/lr")), late(run, names.EXPLAINED_VARIANCE)
    leans = 1 - late(run, names.MC_CORR, 1.0) ** 2
    key, why = next(_by_arithmetic(run, "critic"), ("", ""))
    # Another trainer's model may be a million times as large.
    if not key and not run.trainer and top < 0.03 * default("critic.lr") and explained < 0.05:
        key, why = "critic.lr", f"{len(run.steps)} steps at this rate have no effect"
    if not key or (leans < 0.2 and learning(run) and top > 0 and key != "value_loss.name"):
        return None  # harmless here
    share = f", and {leans:.0%} of the advantages' variance comes from it"
    return Finding(
        "problem",
        f"{against_default(run, key)}: {why}. The critic explains {explained:.2f} of the returns' "
        f"variance{share if run.has(names.MC_CORR) else ''}.",
        _reset(run, key),
        {"explained_variance": explained, "leans": leans},
    )


def _reset(run: Record, key: str) -> str:
    """The remedy for a setting that is harmful by itself."""
    return {
        "value_loss.name": "Check the value loss (`rlzoo check NAME`).",
        "model.lora.alpha": "Set model.lora.alpha to once or twice model.lora.rank.",
        "model.dtype": "Set model.dtype=float32 model.autocast=bfloat16: this computes in half "
        "precision and keeps the weights in float32.",
    }.get(key, f"Set {key}." if run.trainer else f"Set {key} to its default.")


def _by_arithmetic(run: Record, part: str) -> Iterator[tuple[str, str]]:
    """(key, what its value does) of settings that are harmful by themselves. part: whose weights,
    `actor` or `critic`."""
    yield from _of_the_rate(run, part)
    norms = run.series(f"{part}/grad_norm")
    if part == "critic" and norms and max(norms) == 0 and late(run, "critic/vf_loss", 1.0):
        why = "the critic's gradient is exactly 0 although its loss is not, perhaps because of "
        yield "value_loss.name", f"{why}.detach() or .item()"
    if run.known(f"{part}.optimizer", "adamw") == "adamw":  # others scale their steps otherwise
        yield from _of_adamw(run, part)
    if part == "actor":
        yield from _of_the_weights(run)


def _of_the_rate(run: Record, part: str) -> Iterator[tuple[str, str]]:
    rates = run.series(f"{part}/lr")
    lr, warmup = run.known(f"{part}.lr"), run.known(f"{part}.lr_warmup")
    zero, top = sum(rate == 0 for rate in rates), max(rates)
    if zero > len(rates) / 2:
        if rounded(run):
            run.key(f"{part}.lr")  # else 0 may be any small number
        key = f"{part}.lr_schedule" if lr else f"{part}.lr"
        yield key, f"the learning rate is 0 in {zero} of {len(rates)} steps"
    if lr and warmup and top < 0.5 * lr and warmup >= len(run.steps) and run.summary:
        why = f"the learning rate never exceeds {top:.2g} in {len(run.steps)} steps, though "
        yield f"{part}.lr_warmup", f"{why}{part}.lr={lr:g}"


def _of_adamw(run: Record, part: str) -> Iterator[tuple[str, str]]:
    rates, norms = run.series(f"{part}/lr"), run.series(f"{part}/grad_norm")
    steps = optimizer_steps(run)
    names_of = ("lr", "eps", "max_grad_norm", "weight_decay", "betas")
    lr, eps, limit, decay, betas = (run.known(f"{part}.{name}") for name in names_of)
    total = sum(rates) * steps / len(rates)
    norm = min(median(norms), limit or math.inf) if norms else math.inf
    # A rate of 1e-7 is usual for large models, and a run may just have begun to warm up.
    if 0 < total < 2e-6 and len(rates) >= 12 and (lr or max(rates)) < 1e-7 and not learning(run):
        why = f"AdamW moves a weight by at most about {total:.1g} in all {len(rates)} steps"
        yield f"{part}.lr", why
    if limit and eps and norms and limit < 0.1 * median(norms) and norm < 300 * eps:
        why = f"gradients of norm {median(norms):.2g} (median) are clipped to {limit:.2g}, which is"
        yield f"{part}.max_grad_norm", f"{why} too small compared with AdamW's eps={eps:g}"
    # The most for an entry: a model has more than 10,000 weights.
    if eps and norms and eps >= max(1e-5, norm / 100):
        why = f"AdamW divides by sqrt(v) + eps, and the gradient (norm {norm:.2g}) has entries "
        why += f"below {norm / 100:.1g}, so each step is at least "
        yield f"{part}.eps", f"{why}{eps * 100 / max(norm, 1e-30):.0f} times shorter than {part}.lr"
    if decay and total * decay > 0.2:
        why = "AdamW removes lr x weight_decay of each weight at each optimizer step, which is a "
        yield f"{part}.weight_decay", f"{why}factor of exp(-{total * decay:.2g}) over this run"
    memory = betas[0] if isinstance(betas, list) else 0.0
    if memory > default(f"{part}.betas")[0] and steps * (1 - memory) < 2:
        why = f"AdamW averages gradients over about {1 / max(1 - memory, 1e-9):.3g} optimizer steps"
        yield f"{part}.betas", f"{why}, but the run has only {steps}: they follow its first batches"


def _of_the_weights(run: Record) -> Iterator[tuple[str, str]]:
    rank, alpha = run.known("model.lora.rank"), run.known("model.lora.alpha")
    if rank and alpha is not None and alpha < 0.2 * rank:
        why = f"with model.lora.rank={rank} the adapter and its gradients are scaled by "
        yield "model.lora.alpha", f"{why}{alpha / rank:.2g}"
    dtype, top = run.known("model.dtype"), max(run.series("actor/lr"))
    spacing = {"bfloat16": 2**9, "float16": 2**12}.get(dtype or "", 0)
    if spacing and not rank and 0 < top * spacing <= 1 and len(run.steps) >= 6:
        why = f"the trained weights are stored as {dtype}, and a step of {top:g} is lost in "
        yield "model.dtype", f"{why}rounding for each weight above {top * spacing:.2g}"


@cause(names.REWARD, least=3)
def kl_too_strong(run: Record) -> Finding | None:
    """The KL term outweighs the reward."""
    start = run.key("kl.coef", 0.0)
    coef = max(late(run, names.KL_COEF, start), late(run, names.KL_COEF, 0.0))
    if run.key("kl.place") == "none" or coef < 0.1:
        return None
    far, noise = abs(late(run, names.REF_KL, 0.0)), 0.0
    score, reward = late(run, names.SCORE_STD, 0.0), late(run, "rewards/std", 0.0)
    if run.key("kl.place") == "reward" and reward > 0:
        noise = max(0.0, 1 - (score / reward) ** 2)
    grown = run.key("kl.controller") == "adaptive" and coef > 3 * start
    held = far < 0.02 and coef >= 0.3 and (coef >= 1 or grown or not learning(run))
    held = held or (far < 0.05 and coef >= 1 and not learning(run))
    held = held or (grown and coef > 30 * start and coef >= 0.3)  # and rising still
    if not (noise > 0.3 or held):
        return None
    key, advice = against_default(run, "kl.coef"), "Set kl.coef near 0.01."
    if grown:
        key = f"kl.target={run.key('kl.target'):g}, which kl.controller=adaptive answers with a "
        key += f"kl.coef of {coef:.3g}"
        advice = "Raise kl.target."
    share = f"{noise:.0%} of the rewards' variance comes from KL, not from scores. "
    return Finding(
        "problem",
        f"{key}: the KL term outweighs the reward. {share if noise else ''}The policy ends up "
        f"{far:.2g} nats per token from the reference.",
        advice,
        {"kl_coef": coef, "share_of_variance": noise, "ref_kl": far},
    )


@cause(names.ENTROPY, least=3)
def entropy_bonus_too_strong(run: Record) -> Finding | None:
    """The entropy bonus outweighs the reward, so the policy approaches noise."""
    coef, values = run.key("actor.entropy_coef", 0.0), run.series(names.ENTROPY)
    start, end = fmean(values[:2]), late(run, names.ENTROPY)
    high = coef >= 0.1 and end > 0.9 * start and not run.solved  # it learns, and stays as random
    if coef < 0.02 or not (high or (end > 1.1 * start and not rises(run))):
        return None
    return Finding(
        "warning" if rises(run) else "problem",
        f"{against_default(run, 'actor.entropy_coef')}: the entropy bonus outweighs the reward. "
        f"Entropy went from {start:.2g} to {end:.2g} nats per token.",
        "Set actor.entropy_coef=0, or 0.001.",
        {"coef": coef, "first": start, "last": end},
    )


@cause(names.REWARD)
def temperature_far_from_one(run: Record) -> Finding | None:
    """The sampling temperature is far from 1."""
    temperature = run.key("rollout.temperature", 1.0)
    if 0.35 < temperature < 1.7:
        return None
    what = "responses are near noise" if temperature > 1 else "the policy hardly explores"
    return Finding(
        severity(run),
        f"{against_default(run, 'rollout.temperature')}: the sampled and trained policy is "
        f"softmax(logits / {temperature:g}), which is far from the model; at an entropy of "
        f"{early(run, names.ENTROPY):.2g} nats per token {what}.",
        "Set rollout.temperature=1.",
        {"temperature": temperature},
    )


def _clipped(run: Record) -> float:
    """The largest share of tokens that are clipped, early or late."""
    lines = run.steps[-1:] + run.steps[:1]
    fractions = {k for line in lines for k in line if "clipfrac" in k}
    return max((max(early(run, k, 0.0), late(run, k, 0.0)) for k in fractions), default=0.0)


@symptom(names.REWARD, least=3)
def update_too_large(run: Record) -> Finding | None:
    """One batch moves the policy too far."""
    kl, clipped = max(ends([abs(v) for v in run.series(names.PPO_KL) or [0.0]])), _clipped(run)
    harm = not learning(run) or (worse(run) and not rises(run))  # else it games the reward
    rank, alpha = run.known("model.lora.rank") or 0, run.known("model.lora.alpha") or 0.0
    times = {  # of what is usual, as far as it is known
        "train.epochs": run.known("train.epochs") or 0,
        "train.minibatches": (run.known("train.minibatches") or 0) / default("train.minibatches"),
        "actor.lr": (run.known("actor.lr") or 0.0) / default("actor.lr"),
        "model.lora.alpha": alpha / rank / 2 if rank else 0.0,
    }
    key = max(times, key=lambda k: times[k])
    known = times[key] > 1.5
    # Another trainer may not record the KL of an update.
    blind = clipped > 0.15 and run.has("actor/pg_clipfrac") and not run.has(names.PPO_KL) and known
    # Runs that learn have up to 0.08 nats. That a run does not learn has many causes, so a smaller
    # step is accused only with other evidence.
    clear = kl > 0.1 or (kl > 0.04 and (clipped > 0.15 or rose_and_fell(run)))
    if not (kl > 0.3 or ((clear or blind or (clipped > 0.3 and kl > 0.02)) and harm)):
        return None
    own, lower = [*foreign(run)] if kl <= 0.3 else [], f"Lower {key} tenfold."
    if own:
        lower = f"Run `rlzoo check NAME` on {own[0]}, which may be the cause. {lower}"
    effect = "" if blind else f"moves the policy by up to {kl:.2g} nats per token and "
    return Finding(
        "problem" if harm else "warning",
        f"{against_default(run, key) if known else 'No recorded setting is high'}: updates are too "
        f"large. One batch {effect}clips {clipped:.0%} of the tokens."
        f"{'' if known else unknown(run)}",
        lower if known else compare_first(run),
        {"approximate_kl": kl, "clip_fraction": clipped},
    )


@symptom(names.REWARD, names.ENTROPY, names.SCORE_STD, least=SHORTEST_TREND)
def first_updates_break_the_policy(run: Record) -> Finding | None:
    """The first updates lose the reward permanently (in runs that record no KL per update)."""
    values, entropy = run.series(names.REWARD), run.series(names.ENTROPY)
    floor = min(run.series("score/min"), default=min(values))
    had, left = values[0] - floor, max(values[3:]) - floor
    error = run.series(names.SCORE_STD)[0] / run.key("rollout.prompts", 64) ** 0.5
    changed = abs(entropy[3] - entropy[0]) > 0.3 * entropy[0]  # else: the reward itself stopped
    if run.has(names.PPO_KL) or had < 2 * error or had <= 0 or left > 0.1 * had or not changed:
        return None
    return Finding(
        "problem",
        f"{against_default(run, 'actor.lr')}: the first updates break the policy. The reward falls "
        f"from {values[0]:.3g} to {values[3]:.3g} at step {run.steps_of(names.REWARD)[3]} and "
        f"never returns; entropy goes from {entropy[0]:.2g} to {entropy[3]:.2g} nats per token.",
        "Lower actor.lr tenfold.",
        {"first": values[0], "best_after": left + floor},
    )
