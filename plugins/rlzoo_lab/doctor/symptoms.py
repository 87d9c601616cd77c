"""Rules about learning: is there a signal, and does the policy learn it? They are symptoms: a rule
that finds the cause replaces them."""

import shlex
from statistics import fmean, median

import numpy as np

from rlzoo.runs import metrics as names
from rlzoo_lab.data.record import Record
from rlzoo_lab.doctor.rule import SHORTEST_TREND, symptom
from rlzoo_lab.doctor.series import (
    Finding,
    accuracies,
    ends,
    fallen,
    last,
    late,
    learning,
    noise_share,
    optimizer_steps,
    part,
    right_or_wrong,
    spans,
    trend,
)
from rlzoo_lab.doctor.suspects import (
    against_default,
    compare_first,
    default,
    listed,
    nearer,
    unknown,
)

WELL = 0.85  # held-out accuracy, or a reward of at most 1, above which little is left to learn
# Estimators of the zoo that compare a response neither with its group nor with a critic.
WITHOUT_GROUPS = ("a_star_po", "batch_mean", "confidence", "iw_opd", "opd", "raft", "reinforce",
                  "remax", "sdpo", "spo", "vineppo", "vopd")  # fmt: skip


def well(run: Record) -> bool:
    """Whether nearly all answers are already correct, in training or held out."""
    most = max(run.series("score/max") or [1.0])  # a reward with a ceiling
    paid = run.has(names.REWARD) and most <= 1 and late(run, names.REWARD) > WELL
    return (run.accuracy or 0.0) >= WELL or (paid and (run.accuracy is None or run.accuracy > 0.7))


@symptom(names.RIGHT, least=SHORTEST_TREND)
def training_and_held_out_differ(run: Record) -> Finding | None:
    """Training accuracy and held-out accuracy differ."""
    known = part(run)
    off = late(run, names.LOG_PROB_GAP, 0.0) > 0.05 or run.key("rollout.staleness", 0)
    if known is None or off or run.key("sampler.name") not in (None, "transformers"):
        return None
    (gap, error), now, held = known, late(run, names.RIGHT), accuracies(run)
    if abs(gap) < max(3 * error, 0.12) or (gap < 0 and now - held[-1] > 0.5 * gap):
        return None  # the second: they meet again
    if gap > 0:
        what = "The policy memorizes its training prompts, or they are easier than held-out ones"
        advice = "Add distinct prompts; check that none has its answer; set checkpoint.best=true."
    else:
        what = "The answers (labels) of the training prompts are wrong, or these prompts are harder"
        advice = "Does each answer in samples.jsonl belong to its prompt?"
    return Finding(
        "problem" if gap > 0 and (fallen(run) or gap > 0.3) else "warning",
        f"{what}: with the same sampling, training accuracy is {now:.0%} and held-out accuracy "
        f"{held[-1]:.0%} (before training {held[0]:.0%}, best {max(held):.0%}). "
        f"{late(run, names.DISTINCT, 1.0):.0%} of a step's prompts are distinct.",
        advice,
        {"gap": gap, "error": error},
    )


def _warm_start(run: Record) -> str:
    if run.trainer:
        return "a warm start (supervised training on your own pairs)"
    task = shlex.quote(str(run.key("task.name")))
    return f"a warm start (`rlzoo model base {task} --out start`, or `model sft` on your own pairs)"


@symptom(names.SCORE_STD, names.REWARD, least=3)
def reward_constant(run: Record) -> Finding | None:
    """All responses of a step have the same score, so there is no signal."""
    spread, level = run.series(names.SCORE_STD), fmean(run.series(names.REWARD))
    flat, seen = sum(s < 1e-8 for s in spread), max(run.series(names.RIGHT), default=0.0)
    # `no_signal_in_groups` judges groups: a trainer may record the spread within them.
    if flat <= 0.8 * len(spread) or run.solved or (run.trainer and run.has(names.NO_SIGNAL)):
        return None
    known, advice = "", "Read samples.jsonl: the reward does not depend on the response."
    if seen > 0.1:
        known = f" Yet up to {seen:.0%} of the responses of a step are correct."
    elif (run.accuracy or 0.0) > 0.1:
        known = f" Yet held-out accuracy is {run.accuracy:.0%}: are training answers wrong?"
    elif abs(level) < 0.02 and right_or_wrong(run):
        known = " No response is ever correct."
        advice = "Read samples.jsonl. If a response is correct, fix the reward. If none is, use "
        advice += f"easier prompts, or {_warm_start(run)}."
    return Finding(
        "problem",
        f"All responses of a step have the same score in {flat} of {len(spread)} steps (mean "
        f"reward {level:.3g}), so there is no signal.{known}",
        advice,
        {"constant_steps": flat, "of": len(spread), "mean_reward": level},
    )


@symptom(names.REF_KL, least=SHORTEST_TREND)
def kl_exploding(run: Record) -> Finding | None:
    """The policy moves far away from the reference."""
    values = run.series(names.REF_KL)
    n, sums = max(1, len(values) // 3), np.cumsum([0.0, *values])
    middle, tail = fmean(values[-2 * n : -n]), fmean(last(values))
    most = float(((sums[n:] - sums[:-n]) / n).max())
    far = tail > 1.0 or (tail > 0.5 and tail > 2 * middle) or most > 2.0
    if not far or well(run):
        return None
    best = run.improved and fallen(run) is None  # a move that pays, held out as well
    return Finding(
        "note" if best and learning(run) else "warning" if learning(run) else "problem",
        f"KL to the reference is {tail:.3g} nats per token in {spans(run, names.REF_KL)[1]}, after "
        f"{middle:.3g} in the previous third (at most {max(values):.3g}): the policy writes texts "
        f"that are very unlikely under the reference.{'' if learning(run) else unknown(run)}",
        f"To stay nearer, {nearer(run)}." if learning(run) else compare_first(run),
        {"middle": middle, "last": tail, "most": max(values), "kl_coef": run.known("kl.coef")},
    )


@symptom()
def held_out_score_falls(run: Record) -> Finding | None:
    """The last evaluation is significantly worse than an earlier one."""
    gone = fallen(run)
    if gone is None:
        return None
    what, best, final = gone
    apart = final.get(f"{what}_high", 0.0) < best.get(f"{what}_low", 0.0)
    why, advice = unknown(run), compare_first(run)
    if best["step"] > run.evaluations[0]["step"]:
        why = _why_fallen(run) or why
        advice = "Keep the best weights (checkpoint.best=true) or stop there (stop.patience). To "
        advice += f"train longer, lower actor.lr or {nearer(run)}."
    return Finding(
        "problem" if apart else "warning",
        f"Held-out {what.removeprefix('eval/')} was {run.evaluations[0][what]:.3f} at first, "
        f"{best[what]:.3f} at step {best['step']}, and is {final[what]:.3f} at the end.{why}",
        advice,
        {"best_step": best["step"], "best": best[what], "last": final[what]},
    )


def _why_fallen(run: Record) -> str:
    """What is known of the end of a run that lost what it had gained."""
    causes = []
    if run.has(names.ENTROPY):
        start, end = fmean(run.series(names.ENTROPY)[:3]), late(run, names.ENTROPY)
        if not 0.3 * start <= end <= 1.2 * start:
            causes.append(f"entropy went from {start:.2g} to {end:.2g} nats per token")
    if run.known("kl.coef") == 0 or run.known("kl.place") == "none":
        causes.append("no KL penalty keeps the policy near the reference")
    elif late(run, names.REF_KL, 0.0) > 0.5:
        causes.append(f"it is {late(run, names.REF_KL):.2g} nats per token from the reference")
    if (run.known("actor.lr") or 0.0) > 4 * default("actor.lr"):
        causes.append(against_default(run, "actor.lr"))
    return f" Likely: {'; '.join(causes)}." if causes else ""


@symptom(names.REWARD, least=SHORTEST_TREND)
def reward_falling(run: Record) -> Finding | None:
    """The reward falls by more than its noise."""
    span, values = spans(run, names.REWARD), run.series(names.REWARD)
    (change, error), (before, after) = trend(values), ends(values)
    if change >= -3 * error or change == 0 or run.improved:
        return None
    fast = max(ends([abs(v) for v in run.series(names.PPO_KL) or [0.0]])) > 0.02
    return Finding(
        "problem",
        f"The reward falls: {before:.3g} in {span[0]}, {after:.3g} in {span[1]} (standard error "
        f"{error:.2g}).{'' if fast else unknown(run)}",
        "Lower actor.lr." if fast else compare_first(run),
        {"first": before, "last": after, "standard_error": error},
    )


@symptom(names.REWARD, least=SHORTEST_TREND)
def reward_flat(run: Record) -> Finding | None:
    """Neither the reward nor the held-out result rises by more than its noise."""
    span, values = spans(run, names.REWARD), run.series(names.REWARD)
    (change, error), (before, after) = trend(values), ends(values)
    if change > 2 * error or change < -3 * error or run.improved or run.solved or well(run):
        return None
    short = optimizer_steps(run) < 60 or len(values) < 12
    short = short or error > 0.1 * max(late(run, names.SCORE_STD, 0.0), 1e-9)
    why, advice = unknown(run), compare_first(run)
    if short:
        why = " The run is too short for a conclusion."
        advice = "Train longer, or raise rollout.prompts for less noise."
    elif _signal_is_there(run) and not listed(run):
        why = f" The signal is correct, but at {against_default(run, 'actor.lr')} the policy hardly"
        why, advice = f"{why} moves.", "Raise actor.lr threefold."
    return Finding(
        "note" if short else "warning",
        f"The reward is flat: {before:.3g} in {span[0]}, {after:.3g} in {span[1]}; the change of "
        f"{change:+.2g} is within its noise (standard error {error:.2g}).{why}",
        advice,
        {"first": before, "last": after, "standard_error": error},
    )


def _signal_is_there(run: Record) -> bool:
    """Whether scores follow correctness, advantages follow scores, and the loss follows advantages,
    but the policy stays near its start: its learning signal is correct, and it learns slowly."""
    known = [late(run, n, 0.0) for n in (names.ADVANTAGE_CORR, names.PULL_CORR, names.RIGHT_CORR)]
    reference = run.known("kl.reference", "initial")
    near = reference == "initial" and abs(late(run, names.REF_KL, 1.0)) < 5e-3
    if min(known) <= 0.5 or noise_share(run) >= 0.1 or not near:
        return False
    return (run.known("actor.lr") or 0.0) <= default("actor.lr")


@symptom(names.NO_SIGNAL, least=3)
def no_signal_in_groups(run: Record) -> Finding | None:
    """All samples of a prompt have the same score, so group advantages are zero."""
    tail, score = late(run, names.NO_SIGNAL), late(run, names.REWARD)
    # A critic compares with its own prediction, not with the group.
    alone = run.has("critic/vf_loss") or run.known("rollout.samples") == 1
    if tail < 0.7 or alone or run.known("estimator.name") in WITHOUT_GROUPS:
        return None
    differ, some = late(run, names.DISTINCT_IN_GROUP, 1.0) > 0.5, late(run, names.RIGHT, 0.0)
    blind = 0.15 < some < 0.85 and tail > 0.9 and differ and run.has(names.DISTINCT_IN_GROUP)
    good = run.solved or well(run)
    why, advice = "", "Raise rollout.samples, or use prompts that the model solves only sometimes."
    if good:
        why = " Nearly every sample gets the highest reward, so there is little left to learn."
        advice = "Stop, or train on harder prompts."
    elif blind:
        why = f" Their texts differ, and {some:.0%} are correct: the reward ignores the response."
        advice = "Check whether the reward reads the response of its own row."
    elif not differ:
        why = f" The samples of a prompt are nearly identical.{unknown(run)}"
        advice = "Find out what lowered the entropy (rollout.temperature, actor.lr)."
    terms = {n.removeprefix(f"{names.NO_SIGNAL}/"): late(run, n) for n in sorted(run.steps.names())
             if n.startswith(f"{names.NO_SIGNAL}/")}  # fmt: skip
    lively = min(terms, key=lambda n: terms[n], default="")
    lost = bool(terms) and terms[lively] < tail - 0.2
    if terms:
        why += " Equal in their groups: " + ", ".join(f"{n} {x:.0%}" for n, x in terms.items())
        why += f"; {lively} differs, but the sum does not: a cap, or a term against it" * lost + "."
    return Finding(
        "note" if not lost and (good or (learning(run) and not blind)) else "problem",
        f"{tail:.0%} of the groups carry no signal in {spans(run, names.NO_SIGNAL)[1]}: all "
        f"samples of a prompt have the same score (mean {score:.3g}), so advantages are 0.{why}",
        advice,
        {"no_signal": tail, "mean_reward": score} | {f"no_signal/{n}": x for n, x in terms.items()},
    )


@symptom(names.EXPLAINED_VARIANCE, least=SHORTEST_TREND)
def critic_worse_than_a_constant(run: Record) -> Finding | None:
    """The critic predicts returns worse than a constant would."""
    tail = median(last(run.series(names.EXPLAINED_VARIANCE)))
    varies = max(late(run, "returns/std", 1.0), late(run, "returns/max", 0.0)) > 0.02
    if tail >= -0.1 or not varies or late(run, names.SCORE_STD, 1.0) < 0.02:
        return None
    return Finding(
        "problem",
        f"The critic predicts returns worse than a constant: its explained variance is {tail:.2f} "
        f"(median of {spans(run, names.EXPLAINED_VARIANCE)[1]}), not 0.{unknown(run)}",
        f"Check critic.lr, the sign of the value loss and its targets. {compare_first(run)}",
        {"explained_variance": tail},
    )
