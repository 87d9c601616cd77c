"""Rules about facts that hold exactly in any correct run, whatever the algorithm."""

from statistics import fmean, median

from rlzoo.runs import metrics as names
from rlzoo_lab.doctor.follows import follows
from rlzoo_lab.doctor.rule import SHORTEST_TREND, cause, symptom
from rlzoo_lab.doctor.series import (
    Finding,
    accuracies,
    course,
    early,
    first,
    late,
    learning,
    says_yes_or_no,
    updates,
)
from rlzoo_lab.doctor.suspects import foreign
from rlzoo_lab.records.record import Record


@cause()
def not_finite(run: Record) -> Finding | None:
    """NaN or infinity among the metrics."""
    if run.steps.not_finite is None:
        return None
    (step, bad), steps = run.steps.not_finite, run.steps.not_finite_steps
    paid = [name for name in bad if name.startswith(("reward", "score", "advantages", "returns"))]
    others = f", and {len(bad) - 1} other metrics" if bad[1:] else ""
    again = f"; such steps: {', '.join(map(str, steps[:8]))}" if steps[1:] else ""
    more = f" and {len(steps) - 8} more" if steps[8:] else ""
    return Finding(
        "problem",
        f"{bad[0]} is not finite at step {step}{others}{again}{more}.",
        "Check what the reward returns at that step; lower actor.lr and critic.lr."
        if paid
        else "The update overflows, not the reward: lower the learning rate, or compute in "
        "bfloat16 or float32. In float16, loss scaling skips single steps of this kind.",
        {"step": step, "metrics": bad, "steps": list(steps[:100])},
    )


@cause(names.LOG_PROB_GAP)
def sampler_and_policy_disagree(run: Record) -> Finding | None:
    """Tokens were not sampled from the trained policy's distribution."""
    gaps = run.series(names.LOG_PROB_GAP)
    gap = fmean(gaps)
    weighed = run.known("correction.name") or run.known("rollout.old_log_probs") == "sampled"
    if gap < 1e-2 or weighed:
        return None
    top_k, top_p = run.known("rollout.top_k", 0), run.known("rollout.top_p", 1.0)
    if top_k > 0 or top_p < 1:
        keys = [f"rollout.top_k={top_k}"] * (top_k > 0) + [f"rollout.top_p={top_p:g}"] * (top_p < 1)
        why = f"{' and '.join(keys)} truncate the distribution"
        advice = "Set rollout.top_k=0 rollout.top_p=1, or set correction=NAME to reweight the loss."
    elif behind := run.known("rollout.staleness", 0):
        why = f"rollout.staleness={behind} uses the weights of {behind} steps ago"
        advice = "Set correction=NAME to reweight the loss, or lower rollout.staleness or actor.lr."
    elif gaps[0] < 0.1 * gap:
        why = (
            f"the sampler uses old weights: the gap is {gaps[0]:.1g} at the first step and "
            f"grows to {late(run, names.LOG_PROB_GAP):.2g} as training moves the policy"
        )
        advice = "Send the trained weights to the sampler after each update."
    else:
        more = ", top_p or old weights, which are unknown here" if run.trainer else ""
        why = f"sampling and scoring use different settings (precision, dropout, temperature{more})"
        advice = "Sample and score with the same precision and temperature, or set correction=NAME."
    return Finding(
        "problem" if gap > 0.05 else "note" if learning(run) else "warning",
        "The samples are off-policy: their log-probabilities differ from the policy's by "
        f"{gap:.2g} nats per token because {why}.",
        advice,
        {"gap": gap, "first": gaps[0]},
    )


@cause(names.RATIO, names.PPO_KL, least=3)
def ratio_not_one_at_first(run: Record) -> Finding | None:
    """The ratio differs from 1 before any update changed the policy.

    Newer runs record the first optimizer step of each training step. Older runs record means over
    all of them. With one update per batch that is the same. With more, the mean includes the
    updates, but the mean of pi / pi_old over samples of pi_old is 1 for any pi.
    """
    gaps = run.series(names.FIRST_RATIO_GAP)
    ratios, kls = run.series(names.RATIO), run.series(names.PPO_KL)
    if gaps:
        exact = run.key("device") == "cpu" or run.key("model.autocast") == "none"
        away, right = median(gaps), median(gaps) <= (1e-3 if exact else 0.02)
        how = f"abs(log pi - log pi_old) is {away:.2g} nats per token in the first optimizer step"
    else:
        away, kl = median(abs(r - 1) for r in ratios), median(abs(k) for k in kls)
        # Updates also move the mean of a small batch, in proportion to their KL.
        right = max(away, kl) <= 1e-3 if updates(run) == 1 else away <= 0.02 + 2 * kl
        how = f"the ratio of new to old policy is off by {away:.2g}"
    apart = (
        run.series(names.LOG_PROB_GAP) if run.known("rollout.old_log_probs") == "sampled" else []
    )
    if right or (apart and median(apart) > away / 2):  # the ratio is one to another sampler
        return None
    return Finding(
        "problem",
        f"old_log_probs were not computed with the trained policy: {how} of a step (median over "
        f"{len(gaps or ratios)} steps). No weight has changed by then, so the difference must be "
        "0 and the ratio 1. All later ratios and clips are wrong.",
        "Set rollout.old_log_probs=recomputed; look for log-probs from another step, at another "
        "temperature or in lower precision.",
        {"off_by": away, "updates_per_batch": updates(run)},
    )


@cause(names.ADVANTAGE_CORR, names.SCORE_STD, least=3)
def advantages_do_not_follow_scores(run: Record) -> Finding | None:
    """Better responses do not get better advantages, so the estimator has a bug."""
    values = run.series(names.ADVANTAGE_CORR)
    steps = sum(spread > 1e-8 for spread in run.series(names.SCORE_STD))
    # A critic's errors lower it, and groups that are nearly solved do so late in a run.
    start, middle = median(first(values)), median(values)
    if middle > (0.22 if run.has("values/mean") or start > 0.45 else 0.45):
        return None
    if len(values) < 3 or len(values) < steps / 4:
        return None
    if run.has("actor/teacher_kl"):  # distillation follows a teacher, not the score
        return None
    wrong = middle < -0.2
    columns = {k.split(".")[1] for k in run.recipe if k.startswith("columns.")}
    other = f" (The recipe's columns {', '.join(sorted(columns))} may carry another signal.)"
    return Finding(
        "problem" if wrong and not columns else "warning",
        f"The advantages {'fall where scores rise' if wrong else 'hardly follow the scores'}: the "
        f"correlation of a response's score with its mean raw advantage is {middle:.2f} (median of "
        f"{len(values)} steps); correct estimators without a critic have 0.66 or more."
        + (" The policy unlearns its best responses." if wrong else "")
        + (other if columns else ""),
        "Look for a wrong sign in the estimator (`rlzoo check NAME`)."
        if wrong
        else "Inspect one response with `rlzoo trace RUN` and run `rlzoo check NAME`. Does the "
        "estimator read rewards at the wrong token or row? Does it use ranks or indices "
        "instead of rewards? Do the critic's errors dominate?",
        {"correlation": middle, "steps": len(values)},
    )


@cause("advantages/mean", "advantages/std", "score/min", least=SHORTEST_TREND)
def advantages_not_centred(run: Record) -> Finding | None:
    """Advantages mostly have the same sign, despite a baseline or whitening."""
    pairs = zip(run.series("advantages/mean"), run.series("advantages/std"), strict=True)
    off = median(mean / max(std, 1e-6) for mean, std in pairs)
    textbook = 0 < off < 2  # a reward of 0 or 1 without a baseline
    greedy = run.key("estimator.name") == "remax"  # its baseline, greedy decoding, is above it
    # A baseline above every reward of a group: nothing sampled is ever made more likely.
    never = off < 0 and max(run.series("advantages/max"), default=1.0) <= 1e-6
    if (abs(off) < 0.5 and not never) or textbook or greedy or run.has("actor/teacher_kl"):
        return None
    name, whiten = run.key("estimator.name"), run.known("whiten.name", "none")
    shown = "" if run.trainer and "whiten.name" not in run.recipe else f" (whiten={whiten})"
    punishing = off < 0 and max(run.series("score/max"), default=1.0) <= 0 and whiten == "none"
    what = (
        f"{'All' if off > 2 else 'Most'} advantages are positive: estimator {name} subtracts no "
        "baseline, or too small a one, so every sampled token becomes more likely, correct or not"
        if off > 0
        else "All rewards are negative and no baseline is subtracted, so every sampled token "
        "becomes less likely"
        if punishing
        else f"Advantages are too low{' (not one is positive)' * never}: estimator {name} "
        "subtracts too large a baseline (such as a sum instead of a mean, a maximum, one that is "
        "subtracted twice, or that of another group), so even good tokens become less likely"
    )
    meant = off > 0 and run.improved and not foreign(run)  # a zoo's estimator, and it learns
    return Finding(
        "note" if meant else "warning" if learning(run) else "problem",
        f"{what}. The mean advantage is {off:+.2g} standard deviations (median); with a baseline "
        f"or whitening it is near 0{shown}. The reward went from {course(run)}.",
        f"Check the baseline of {name} (`rlzoo trace RUN`), or set whiten=batch."
        if not punishing
        else "Set whiten=batch, or use an estimator with a baseline.",
        {"mean_over_std": off},
    )


@cause(names.PULL_CORR, least=3)
def loss_does_not_follow_advantages(run: Record) -> Finding | None:
    """The policy loss does not raise the log-probs of tokens with good advantages."""
    middle = median(run.series(names.PULL_CORR))
    if middle > 0.45:  # losses that are correct were at 0.9 and above
        return None
    loss = f"policy_loss {run.known('policy_loss.name', '')}".rstrip()
    if middle == 0 and run.known("correction.name"):  # its weights multiply the loss
        loss += f" and correction {run.known('correction.name')}"
    weighed = (
        " The loss may be correct, with a correction that gives weight 0 to all useful tokens."
        if " and correction" in loss
        else ""
    )
    what = (
        f"The {loss} has the wrong sign: it lowers the log-probabilities of tokens with good "
        "advantages"
        if middle < -0.2
        else f"No gradient reaches log pi through the {loss}: it is exactly 0"
        if middle == 0
        else f"The {loss} (or the whitening) hardly follows the advantages"
        + (
            ", though it did at the first step: its ratio or clipping does not use the policy "
            "that sampled the responses"
            if run.series(names.PULL_CORR)[0] > 0.8
            else ""
        )
    )
    return Finding(
        "problem",
        f"{what}. The correlation of -d(loss)/d(log pi) with the raw advantages is {middle:.2f} "
        "(median); correct losses have 0.9 or more. The gradient norm is "
        f"{late(run, 'actor/grad_norm', 0.0):.2g}. The reward went from {course(run)}.{weighed}",
        f"Train once without {run.known('correction.name')} (correction.name=null)."
        if weighed
        else "Check the loss (`rlzoo check NAME`): its sign, its detached tensors, and whether "
        "each row uses its own advantages. Changing the learning rate does not help.",
        {"correlation": middle},
    )


def noise_share(run: Record) -> float:
    """The share of the scores' variance that is between identical responses to one prompt."""
    spread = late(run, names.SCORE_STD, 0.0)
    return min(1.0, (late(run, names.SCORE_NOISE, 0.0) / spread) ** 2) if spread > 1e-9 else 0.0


@cause(names.RIGHT_CORR, least=3)
def reward_is_not_what_is_right(run: Record) -> Finding | None:
    """The score does not correlate with correctness, or it is a binary check of something else."""
    values = run.series(names.RIGHT_CORR)
    middle, verdict, noise = fmean(values), says_yes_or_no(run), noise_share(run)
    if middle > (0.6 if verdict else 0.1) or (len(values) < 6 and middle > -0.2):
        return None
    held = accuracies(run)
    before, after = (held[0], held[-1]) if held else (None, None)
    heldout = f" Held-out accuracy went {before:.2f} to {after:.2f}." if held else ""
    weights = [k for k in run.recipe if k.startswith("rewards.") and k.endswith(".weight")]
    negative = [f"{k}={run.key(k):g}" for k in weights if run.key(k, 1.0) < 0]
    turned = middle < -0.8 or bool(negative)
    what = (
        "The reward favors wrong answers"
        if middle < -0.2 or turned
        else "The reward is unrelated to correctness"
        if middle < 0.1
        else "The reward is binary, but it does not check whether this response is correct"
    )
    random = noise > 0.1 and (
        f" Identical responses to a prompt score differently ({noise:.0%} of the scores' "
        "variance): the reward is noisy, or returns the score of another row or step."
    )
    return Finding(
        "problem",
        f"{what}{' (' + ', '.join(negative) + ')' if negative else ''}: the correlation of a "
        f"response's score with the task's own check is {middle:.2f} (mean of {len(values)} "
        f"steps). The reward went from {course(run)}, and the response length went from "
        f"{course(run, names.LENGTH)}.{random or follows(run)}{heldout}",
        "Flip the sign of the reward or of its weight."
        if turned
        else "Call the reward twice with one response: it must return the same score, computed "
        "only from this row's prompt, response and answer."
        if random
        else "Read samples.jsonl and the scores: which responses get a reward? The reward may read "
        "a different answer than the task does, or depend on something else, such as length.",
        {"correlation": middle, "before": before, "after": after, "noise": noise},
    )


@symptom(names.SCORE_NOISE, names.SCORE_STD, least=3)
def reward_is_noisy(run: Record) -> Finding | None:
    """Identical responses to a prompt get different scores."""
    share = noise_share(run)
    if share < 0.1:
        return None
    known = run.has(names.RIGHT_CORR) and late(run, names.RIGHT_CORR)
    corr = f" Its correlation with correctness is {known:.2f}." if known else ""
    severity = "problem" if not learning(run) else "warning" if share > 0.5 else "note"
    if run.improved and not foreign(run):  # the noise of a shipped task is intended
        severity = "note"
    return Finding(
        severity,
        "The reward is noisy: identical responses to a prompt differ in score by a standard "
        f"deviation of {late(run, names.SCORE_NOISE):.2g}, which is {share:.0%} of the scores' "
        f"variance ({late(run, names.SCORE_STD):.2g} squared).{corr} The reward may be random "
        "(some tasks intend this), or return the score of another row or an earlier step. The "
        f"reward went from {course(run)}.",
        "Compute the score only from this row's prompt, response and answer; if it cannot be "
        "deterministic (a judge that samples), average several calls.",
        {"share": share},
    )


@cause(names.DISTINCT_IN_GROUP, names.ENTROPY, least=3)
def samples_are_copies(run: Record) -> Finding | None:
    """All samples of a prompt are the same text although the policy has entropy."""
    samples, entropy = run.key("rollout.samples", 1), early(run, names.ENTROPY)
    same = early(run, names.DISTINCT_IN_GROUP)
    if samples < 2 or same > 1.05 / samples or entropy < 0.15:
        return None
    return Finding(
        "problem",
        f"The {samples} samples of a prompt are copies: {same:.0%} of a group's texts are "
        f"distinct, or one per prompt, although the entropy is {entropy:.2g} nats per token. All "
        "rows use the same random numbers, or the sampler is greedy.",
        "Check the sampler: each row needs its own random numbers and rollout.top_k=0. Raising "
        "rollout.samples does not help.",
        {"distinct": same, "entropy": entropy},
    )
