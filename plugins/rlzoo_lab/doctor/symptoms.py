"""Rules about learning: is there a signal, and does the policy learn it? They are symptoms: a rule
that finds the cause replaces them."""

import shlex
from statistics import fmean

from rlzoo.runs import metrics as names
from rlzoo_lab.doctor.broken import noise_share
from rlzoo_lab.doctor.rule import SHORTEST_TREND, symptom
from rlzoo_lab.doctor.series import (
    Finding,
    accuracies,
    course,
    ends,
    every,
    fallen,
    last,
    late,
    learning,
    moving_means,
    part,
    right_or_wrong,
    spans,
    trend,
)
from rlzoo_lab.doctor.suspects import against_default, compare_first, default, nearer, unknown
from rlzoo_lab.records.record import Record

WELL = 0.85  # held-out accuracy, or a reward of at most 1, above which little is left to learn


# Estimators of the zoo that compare a response neither with its group nor with a critic.
WITHOUT_GROUPS = (
    "a_star_po",
    "iw_opd",
    "opd",
    "raft",
    "reinforce",
    "remax",
    "sdpo",
    "spo",
    "vineppo",
    "vopd",
)


def well(run: Record) -> bool:
    """Whether nearly all answers are already correct, in training or held out."""
    most = max(run.series("score/max") or [1.0])  # a reward with a ceiling
    paid = run.has(names.REWARD) and most <= 1 and late(run, names.REWARD) > WELL
    return (run.accuracy or 0.0) >= WELL or (paid and (run.accuracy is None or run.accuracy > 0.7))


def signal_is_there(run: Record) -> bool:
    """Whether scores follow correctness, advantages follow scores, and the loss follows advantages.
    If so, a policy that does not improve learns too slowly; its learning signal is correct."""
    known = [late(run, n, 0.0) for n in (names.ADVANTAGE_CORR, names.PULL_CORR, names.RIGHT_CORR)]
    if min(known) <= 0.5 or noise_share(run) >= 0.1:
        return False
    return run.known("actor.lr", 0.0) <= default("actor.lr")


@symptom(names.RIGHT, least=SHORTEST_TREND)
def training_and_held_out_part(run: Record) -> Finding | None:
    """Training accuracy and held-out accuracy differ."""
    known = part(run)
    off = late(run, names.LOG_PROB_GAP, 0.0) > 0.05 or run.key("rollout.staleness", 0)
    if known is None or off or run.key("sampler.name") not in (None, "transformers"):
        return None
    gap, error = known
    if abs(gap) < max(3 * error, 0.12):
        return None
    share = late(run, names.DISTINCT, 1.0)
    few = (
        f" Only {share * run.key('rollout.prompts', 1):.0f} of a step's "
        f"{run.key('rollout.prompts')} prompts are distinct."
        if share < 0.8
        else ""
    )
    now = late(run, names.RIGHT)
    held = accuracies(run)
    if gap < 0 and now - held[-1] > 0.5 * gap:  # they meet again
        return None
    if gap > 0:
        return Finding(
            "problem" if fallen(run) or gap > 0.3 else "warning",
            "The policy memorizes its training prompts, or they are easier than the held-out "
            f"ones: training accuracy is {now:.0%}, and held-out accuracy is {held[-1]:.0%} "
            f"(before training {held[0]:.0%}, best {max(held):.0%}).{few}",
            "Add distinct prompts to the data; check that no prompt contains its answer; keep the "
            "weights of the best evaluation (checkpoint.best=true).",
            {"gap": gap, "error": error},
        )
    return Finding(
        "warning",
        f"Training accuracy ({now:.0%}) is below held-out accuracy ({held[-1]:.0%}), although "
        "both use the same sampling. The answers (labels) of the training prompts are wrong, or "
        "these prompts are harder.",
        "Compare answers with prompts in samples.jsonl: does each answer belong to its prompt?",
        {"gap": gap, "error": error},
    )


def _warm_start(run: Record) -> str:
    if run.trainer:
        return "a warm start (supervised training on your own pairs)"
    task = shlex.quote(str(run.key("task.name")))
    return f"a warm start (`rlzoo base {task} --out start`, or `rlzoo sft` on your own pairs)"


@symptom(names.SCORE_STD, names.REWARD, least=3)
def reward_constant(run: Record) -> Finding | None:
    """All responses of a step have the same score, so there is no signal."""
    spread = run.series(names.SCORE_STD)
    flat = sum(s < 1e-8 for s in spread)
    # `no_signal_in_groups` judges groups: a trainer may record the spread within them.
    if flat <= 0.8 * len(spread) or run.solved or (run.trainer and run.has(names.NO_SIGNAL)):
        return None
    level = fmean(run.series(names.REWARD))
    began = (
        ""
        if min(spread[:3]) < 1e-8
        else " (not at first; the policy moved to a region of equal scores)"
    )
    zero = abs(level) < 0.02
    seen = max(run.series(names.RIGHT), default=0.0)
    never = flat == len(spread) and seen == 0 and right_or_wrong(run)
    known = (
        f" Yet up to {seen:.0%} of the responses of a step are correct, so the reward does not "
        "depend on correctness."
        if seen > 0.1
        else f" Held-out accuracy is {run.accuracy:.0%} at the same time, so the answers (labels) "
        "of the training prompts are wrong, or these prompts are harder."
        if (run.accuracy or 0.0) > 0.1
        else ""
    )
    return Finding(
        "problem",
        f"All responses of a step have the same score in {flat} of {len(spread)} steps{began} "
        f"(mean reward {level:.3g}), so there is no signal."
        + (" No response of a step is ever correct." if zero and never else "")
        + known,
        "Read samples.jsonl: is any response correct? If not, the task is too hard for this "
        f"model: use easier prompts, or {_warm_start(run)}. If some responses are correct, fix "
        "the reward."
        if zero and right_or_wrong(run)
        else "Read samples.jsonl: the reward does not depend on the response.",
        {"constant_steps": flat, "of": len(spread), "mean_reward": level},
    )


@symptom(names.REF_KL, least=SHORTEST_TREND)
def kl_exploding(run: Record) -> Finding | None:
    """The policy moves far away from the reference."""
    span = spans(run, names.REF_KL)[1]
    values = run.series(names.REF_KL)
    n = max(1, len(values) // 3)
    middle, tail = fmean(values[-2 * n : -n]), fmean(last(values))
    most = max(moving_means(values, n))
    far = tail > 1.0 or (tail > 0.5 and tail > 2 * middle) or most > 2.0
    if not far or well(run):
        return None
    best = run.improved and fallen(run) is None  # a move that pays, held out as well
    return Finding(
        "note" if best and learning(run) else "warning" if learning(run) else "problem",
        f"KL to the reference is {tail:.3g} nats per token in {span}, after {middle:.3g} in the "
        f"previous third (at most {max(values):.3g}): the policy writes texts that are very "
        "unlikely under the reference. The reward went from "
        f"{course(run)}.{'' if learning(run) else unknown(run)}",
        f"To stay nearer, {nearer(run)}." if learning(run) else compare_first(run),
        {"middle": middle, "last": tail, "most": max(values), "kl_coef": run.known("kl.coef")},
    )


@symptom()
def held_out_falls(run: Record) -> Finding | None:
    """The last evaluation is significantly worse than an earlier one."""
    gone = fallen(run)
    if gone is None:
        return None
    what, best, final = gone
    rose = best["step"] > run.evaluations[0]["step"]
    start, floor = fmean(run.series(names.ENTROPY)[:3] or [0.0]), late(run, names.ENTROPY, 0.0)
    causes = []
    if run.has(names.ENTROPY) and floor < 0.3 * start:
        causes.append(
            f"entropy fell from {start:.2g} to {floor:.2g} nats per token, so the samples of a "
            "prompt are nearly identical and updates follow the few that differ"
        )
    elif run.has(names.ENTROPY) and floor > 1.2 * start:
        causes.append(
            f"entropy rose from {start:.2g} to {floor:.2g} nats per token, so responses approach "
            "noise"
        )
    free = run.known("kl.coef", 1.0 if run.trainer else 0.0) == 0
    if free or (run.known("kl.place") == "none" and not run.has(names.REF_KL)):
        causes.append("no KL penalty keeps the policy near the reference")
    elif late(run, names.REF_KL, 0.0) > 0.5:
        causes.append(f"it is {late(run, names.REF_KL):.2g} nats per token from the reference")
    if run.known("actor.lr", 0.0) > 4 * default("actor.lr"):
        causes.append(against_default(run, "actor.lr"))
    if not right_or_wrong(run) and not run.has(names.SCORE_NOISE):
        causes.append(
            "or the reward is noisy (this cannot be measured, because no text was sampled twice)"
        )
    likely = f" Likely: {'; '.join(causes)}." if causes and rose else ""
    greedy = (
        f" (greedy {best[names.GREEDY]:.3f} to {final[names.GREEDY]:.3f})"
        if names.GREEDY in best and names.GREEDY in final
        else ""
    )
    apart = final.get(f"{what}_high", 0.0) < best.get(f"{what}_low", 0.0)
    name = what.removeprefix("eval/")
    first = f"rose from {run.evaluations[0][what]:.3f} to" if rose else "was"
    return Finding(
        "problem" if apart else "warning",
        f"Held-out {name} {first} {best[what]:.3f} at step {best['step']} and fell to "
        f"{final[what]:.3f} at step {final['step']}{greedy}; the training reward went from "
        f"{course(run)}.{likely}{'' if likely else unknown(run)}",
        "Keep the weights of the best evaluation (checkpoint.best=true) or stop there "
        f"(stop.patience). To train longer, lower actor.lr or {nearer(run)}."
        if rose
        else compare_first(run),
        {"best_step": best["step"], "best": best[what], "last": final[what]},
    )


@symptom(names.REWARD, least=SHORTEST_TREND)
def reward_falling(run: Record) -> Finding | None:
    """The reward falls by more than its noise."""
    span, values = spans(run, names.REWARD), run.series(names.REWARD)
    change, error = trend(values)
    if change >= -3 * error or change == 0 or run.improved:
        return None
    before, after = ends(values)
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
    span = spans(run, names.REWARD)
    values = run.series(names.REWARD)
    change, error = trend(values)
    if change > 2 * error or change < -3 * error or run.improved or run.solved or well(run):
        return None
    before, after = ends(values)
    spread = late(run, names.SCORE_STD, 0.0)
    each = run.known("train.epochs", 1) * run.known("train.minibatches", 1)
    few = len(values) * every(run) * each < 60
    slow = signal_is_there(run) and abs(late(run, names.REF_KL, 1.0)) < 5e-3
    short = few or len(values) < 12 or error > 0.1 * max(spread, 1e-9)
    return Finding(
        "note" if short else "warning",
        f"The reward is flat: {before:.3g} in {span[0]}, "
        f"{after:.3g} in {span[1]}; the change of {change:+.2g} is within "
        f"its noise (standard error {error:.2g})"
        + (", and the held-out result did not improve." if len(run.evaluations) > 1 else ".")
        + (" The run is too short for a conclusion." if short else "" if slow else unknown(run)),
        "Train longer, or raise rollout.prompts for less noise."
        if short
        else f"Raise {against_default(run, 'actor.lr')} threefold: the gradient follows the "
        "advantages and the advantages follow the scores, but the policy moved only "
        f"{abs(late(run, names.REF_KL)):.1g} nats per token."
        if slow
        else compare_first(run),
        {"first": before, "last": after, "standard_error": error},
    )


@symptom(names.NO_SIGNAL, least=3)
def no_signal_in_groups(run: Record) -> Finding | None:
    """All samples of a prompt have the same score, so group advantages are zero."""
    span = spans(run, names.NO_SIGNAL)[1]
    if run.has("critic/vf_loss") or run.known("rollout.samples", 2) < 2:
        return None  # a critic compares with its own prediction, not with the group
    if run.known("estimator.name") in WITHOUT_GROUPS:
        return None
    tail = fmean(last(run.series(names.NO_SIGNAL)))
    if tail < 0.7:
        return None
    score = fmean(last(run.series(names.REWARD)))
    if run.solved or well(run):
        all_of = "is correct" if right_or_wrong(run) else "gets the highest reward"
        return Finding(
            "note",
            f"{tail:.0%} of the groups carry no signal in {span}, because nearly every "
            f"sample {all_of} (mean reward {score:.2f}"
            + ("" if run.accuracy is None else f", held-out accuracy {run.accuracy:.2f}")
            + "), so there is little left to learn.",
            "Stop, or train on harder prompts.",
            {"no_signal": tail, "accuracy": run.accuracy},
        )
    some = late(run, names.RIGHT, 0.0)
    blind = 0.15 < some < 0.85 and tail > 0.9 and late(run, names.DISTINCT_IN_GROUP, 0.0) > 0.5
    known = (
        f" But their texts differ, and {some:.0%} of them are correct: the reward gives one score "
        "per prompt and ignores the response."
        if blind
        else ""
    )
    return Finding(
        "note" if learning(run) and not blind else "problem",
        f"{tail:.0%} of the groups carry no signal in {span}: all samples of a prompt have the "
        f"same score (mean reward {score:.3g}), so their advantages are 0.{known}",
        "Check whether the reward reads the response of its own row."
        if blind
        else "Raise rollout.samples, or use prompts that the model solves only sometimes."
        if late(run, names.DISTINCT_IN_GROUP, 1.0) > 0.5
        else "The samples of a prompt are nearly identical: find out what lowered the entropy "
        "(rollout.temperature, actor.lr)." + unknown(run),
        {"no_signal": tail, "mean_reward": score},
    )
