"""Rules about learning: is there a signal, and does the policy learn it? Most findings here are
symptoms; a rule that finds the cause replaces them."""

import shlex
from statistics import fmean, median

from rlzoo.runs import metrics as names
from rlzoo_lab.doctor.broken import noise_share
from rlzoo_lab.doctor.rule import SHORTEST_TREND, symptom
from rlzoo_lab.doctor.series import (
    Finding,
    course,
    ends,
    every,
    fallen,
    last,
    late,
    learning,
    moving_means,
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


@symptom(names.SKIPPED)
def updates_skipped(run: Record) -> Finding | None:
    """The loss or gradient was not finite, so optimizer steps were skipped."""
    steps = [n for n, value in run.points(names.SKIPPED) if value > 0]
    if not steps:
        return None
    total, share = sum(run.series(names.SKIPPED)), len(steps) / len(run.steps)
    return Finding(
        "problem" if share > 0.05 else "warning",
        f"{total:g} updates were skipped, in {len(steps)} of {len(run.steps)} steps (the first "
        f"at step {steps[0]}): their loss or gradient was not finite.",
        "Lower actor.lr and critic.lr; if that does not help, set model.autocast=none.",
        {"updates": total, "steps": steps[:100]},
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


@symptom(names.SCORE_STD, names.REWARD, least=SHORTEST_TREND)
def no_response_is_right(run: Record) -> Finding | None:
    """So few responses earn a reward that hardly any step has a signal."""
    if max(run.series(names.SCORE_STD)) < 1e-8:
        return None  # `reward_constant` reports it
    best = max(run.series("score/max") or [0.0])
    floor = min(run.series("score/min") or [0.0])
    values, spread = run.series(names.REWARD), best - floor
    most = max((e.get(names.ACCURACY, 0.0) for e in run.evaluations), default=0.0)
    if spread <= 0 or run.accuracy is None or most > 0.05:
        return None
    share = [(v - floor) / spread for v in values]
    if fmean(share) > 0.03 or max(ends(share)) > 0.06 or fmean(share[:3]) > 0.05:
        return None
    return Finding(
        "problem",
        f"The task is too hard for this model: over {len(values)} steps, the average score is "
        f"{fmean(share):.1%} of the best one, and held-out accuracy is {run.accuracy:.3f}. Hardly "
        "any step has a signal.",
        f"Use easier prompts, or {_warm_start(run)}.",
        {"share": fmean(share), "accuracy": run.accuracy},
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


@symptom("raw_advantages/std", least=3)
def advantages_vanish(run: Record) -> Finding | None:
    """All advantages are (nearly) equal."""
    span = spans(run, "raw_advantages/std")[1]
    values = run.series("raw_advantages/std")
    tail = fmean(last(values))
    if tail > 1e-4 or run.solved:
        return None
    score = late(run, names.SCORE_STD, 0.0)
    return Finding(
        "problem",
        f"Advantages do not vary (standard deviation {tail:.1g} in {span}; that of the scores is "
        f"{score:.2g}), so the gradient is only rounding error.",
        f"Check what estimator {run.known('estimator.name', '')} reads (`rlzoo trace RUN`, "
        "`rlzoo check`)."
        if score > 1e-3
        else "Check what the reward returns (samples.jsonl).",
        {"std": tail, "score_std": score},
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


@symptom(names.ENTROPY, least=SHORTEST_TREND)
def entropy_collapse(run: Record) -> Finding | None:
    """The policy has stopped exploring and does not improve."""
    span = spans(run, names.ENTROPY)[1]
    values = run.series(names.ENTROPY)
    start, tail = fmean(values[:3]), fmean(last(values))
    if tail > 0.2 * start or start <= 0 or run.solved or well(run) or learning(run):
        return None
    fast = max(abs(v) for v in run.series(names.PPO_KL) or [1.0]) > 0.005
    return Finding(
        "warning" if run.accuracy is None else "problem",
        f"Entropy collapsed from {start:.3g} to {tail:.3g} nats per token ({span})"
        + ("" if run.accuracy is None else f", at a held-out accuracy of {run.accuracy:.2f}")
        + ": samples of a prompt become identical, so the policy no longer explores."
        + ("" if fast else unknown(run)),
        f"Lower actor.lr, or {nearer(run)}; actor.entropy_coef=0.001 preserves exploration."
        if fast
        else compare_first(run),
        {"first": start, "last": tail},
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


def _gradient(run: Record, name: str) -> Finding | None:
    limit = run.key(f"{name}.max_grad_norm")
    norms = run.series(f"{name}/grad_norm")
    if not limit or not norms:
        return None
    over = sum(norm > limit for norm in norms) / len(norms)
    middle = median(norms)
    if over <= 0.9 or middle <= 3 * limit:
        return None
    eps = run.known(f"{name}.eps", 0.0 if run.trainer else 1e-6)
    too_small = limit < 1e4 * eps
    return Finding(
        "warning" if middle > 30 * limit and (too_small or not learning(run)) else "note",
        f"The gradient of the {name} is clipped in {over:.0%} of the steps: its norm is "
        f"{middle:.3g} (median), and {name}.max_grad_norm is {limit:g}. Only its direction is "
        "used; with AdamW "
        + (
            f"and {name}.eps={eps:g}, steps become small."
            if too_small
            else "this has little effect."
        ),
        f"Raise {name}.max_grad_norm to about {2 * middle:.2g}.",
        {"share": over, "median_norm": middle, "limit": limit},
    )


@symptom("actor/grad_norm", least=3)
def actor_gradient_always_clipped(run: Record) -> Finding | None:
    """The policy's gradient norm is always far above its limit."""
    return _gradient(run, "actor")


@symptom("critic/grad_norm", least=3)
def critic_gradient_always_clipped(run: Record) -> Finding | None:
    """The critic's gradient norm is always far above its limit."""
    return _gradient(run, "critic")


@symptom(names.PG_LOSS, names.REWARD, least=SHORTEST_TREND)
def loss_near_zero(run: Record) -> Finding | None:
    """The policy loss is near 0 while the reward rises, which is normal."""
    losses, rewards = run.series(names.PG_LOSS), run.series(names.REWARD)
    size = fmean([abs(v) for v in losses])
    change, error = trend(rewards)
    if size > 0.02 or change <= 2 * error:
        return None
    return Finding(
        "note",
        f"The policy loss stays near 0 (mean size {size:.1g}) while the reward rises by "
        f"{change:.2g}. This is normal: at ratio 1, the loss is minus the mean advantage, which "
        "is 0 with whitening or a baseline. Its gradient is not 0.",
        "Watch reward/mean and eval/*, not the loss.",
        {"loss": size, "reward_change": change},
    )
