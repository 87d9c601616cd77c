"""Rules about facts that hold in any correct run, whatever the algorithm."""

from statistics import fmean, median

from rlzoo.runs import metrics as names
from rlzoo_lab.data.record import Record
from rlzoo_lab.doctor.rule import SHORTEST_TREND, cause
from rlzoo_lab.doctor.series import (
    Finding,
    early,
    first,
    learning,
    noise_share,
    says_yes_or_no,
    severity,
)
from rlzoo_lab.doctor.suspects import foreign


@cause()
def not_finite(run: Record) -> Finding | None:
    """NaN or infinity among the metrics."""
    if run.steps.not_finite is None:
        return None
    (step, bad), steps = run.steps.not_finite, run.steps.not_finite_steps
    others = f", and {len(bad) - 1} other metrics" if bad[1:] else ""
    again = f"; such steps: {', '.join(map(str, steps[:8]))}" if steps[1:] else ""
    advice = "The update overflows: lower the learning rate, or compute in bfloat16 or float32. In "
    advice += "float16, loss scaling skips single steps of this kind."
    if any(name.startswith(("reward", "score", "advantages", "returns")) for name in bad):
        advice = "Check what the reward returns at that step; lower actor.lr and critic.lr."
    return Finding(
        "problem",
        f"{bad[0]} is not finite at step {step}{others}{again}{', ...' if steps[8:] else ''}.",
        advice,
        {"step": step, "metrics": bad, "steps": list(steps[:100])},
    )


@cause(names.SKIPPED)
def updates_skipped(run: Record) -> Finding | None:
    """The loss or gradient was not finite, so optimizer steps were skipped."""
    steps = [step for step, count in run.points(names.SKIPPED) if count > 0]
    if not steps:
        return None
    return Finding(
        "problem" if 20 * len(steps) > len(run.steps) else "warning",
        f"{sum(run.series(names.SKIPPED)):g} updates were skipped, in {len(steps)} of "
        f"{len(run.steps)} steps (the first at step {steps[0]}): their loss or gradient was not "
        "finite.",
        "Lower actor.lr and critic.lr; if that does not help, set model.autocast=none.",
        {"steps": steps[:100]},
    )


@cause(names.LOG_PROB_GAP)
def sampler_and_policy_disagree(run: Record) -> Finding | None:
    """Tokens were not sampled from the trained policy's distribution."""
    gaps = run.series(names.LOG_PROB_GAP)
    gap = fmean(gaps)
    weighed = run.known("correction.name") or run.known("rollout.old_log_probs") == "sampled"
    if gap < 1e-2 or weighed:
        return None
    top_k, top_p = run.known("rollout.top_k") or 0, run.known("rollout.top_p") or 1.0
    advice = "Sample and score with the same precision and temperature, or set correction=NAME."
    if top_k > 0 or top_p < 1:
        why = f"rollout.top_k={top_k} and rollout.top_p={top_p:g} truncate the distribution"
        advice = "Set rollout.replay=kept, rollout.top_k=0 rollout.top_p=1, or correction=NAME."
    elif behind := run.known("rollout.staleness"):
        why = f"rollout.staleness={behind} uses the weights of {behind} steps ago"
        advice = "Set correction=NAME to reweight the loss, or lower rollout.staleness or actor.lr."
    elif gaps[0] < 0.1 * gap:
        why = f"the sampler uses old weights: the gap is {gaps[0]:.1g} at the first step and grows"
        advice = "Send the trained weights to the sampler after each update."
    else:
        more = ", top_p or old weights, which are unknown here" if run.trainer else ""
        why = f"sampling and scoring use different settings (precision, dropout, temperature{more})"
    return Finding(
        "problem" if gap > 0.05 else "note" if learning(run) else "warning",
        "The samples are off-policy: their log-probabilities differ from the policy's by "
        f"{gap:.2g} nats per token because {why}.",
        advice,
        {"gap": gap, "first": gaps[0]},
    )


@cause(names.FIRST_RATIO_GAP)
def ratio_not_one_at_first(run: Record) -> Finding | None:
    """The ratio differs from 1 before any update changed the policy."""
    away = median(run.series(names.FIRST_RATIO_GAP))
    exact = run.key("device") == "cpu" or run.key("model.autocast") == "none"
    apart = run.series(names.LOG_PROB_GAP)
    sampled = apart and run.known("rollout.old_log_probs") == "sampled"
    if away <= (1e-3 if exact else 0.02) or (sampled and median(apart) > away / 2):
        return None  # the ratio may be one to another sampler
    return Finding(
        "problem",
        "old_log_probs are not of the trained policy: abs(log pi - log pi_old) is "
        f"{away:.2g} nats per token (median) before any weight of a step has changed.",
        "Set rollout.old_log_probs=recomputed; look for log-probs from another step, at another "
        "temperature or in lower precision.",
        {"off_by": away},
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
    # Distillation follows a teacher, not the score.
    if len(values) < steps / 4 or run.has("actor/teacher_kl"):
        return None
    wrong = middle < -0.2
    columns = sorted({k.split(".")[1] for k in run.recipe if k.startswith("columns.")})
    other = f" The recipe's columns {', '.join(columns)} may carry another signal."
    advice = (
        "Inspect a response (`rlzoo trace RUN`), run `rlzoo check NAME`: does the estimator read "
    )
    advice += "rewards at the wrong token or row, or use ranks or indices?"
    if wrong:
        advice = "Look for a wrong sign in the estimator (`rlzoo check NAME`)."
    return Finding(
        "problem" if wrong and not columns else "warning",
        f"The advantages {'fall where scores rise' if wrong else 'hardly follow the scores'}: the "
        f"correlation of a response's score with its mean raw advantage is {middle:.2f} (median of "
        f"{len(values)} steps); correct estimators without a critic have 0.66 or more."
        f"{other if columns else ''}",
        advice,
        {"correlation": middle, "steps": len(values)},
    )


@cause("advantages/mean", "advantages/std", "score/min", least=SHORTEST_TREND)
def advantages_not_centred(run: Record) -> Finding | None:
    """Advantages mostly have the same sign, despite a baseline or whitening."""
    pairs = zip(run.series("advantages/mean"), run.series("advantages/std"), strict=True)
    off, name = median(mean / max(std, 1e-6) for mean, std in pairs), run.key("estimator.name")
    textbook = 0 < off < 2  # a reward of 0 or 1 without a baseline
    greedy = name == "remax"  # its baseline, greedy decoding, is above it
    # A baseline above every reward of a group: nothing sampled is ever made more likely.
    never = off < 0 and max(run.series("advantages/max"), default=1.0) <= 1e-6
    if (abs(off) < 0.5 and not never) or textbook or greedy or run.has("actor/teacher_kl"):
        return None
    if off > 0:
        what = f"Most advantages are positive: estimator {name} subtracts no baseline, or too small"
        what += " a one, so every sampled token becomes more likely, correct or not"
    else:
        what = f"Advantages are too low{', and not one is positive' * never}: estimator {name} "
        what += "subtracts too large a baseline (a sum, a maximum, twice the mean), or none from "
        what += "negative rewards, so even good tokens become less likely"
    meant = off > 0 and run.improved and not foreign(run)  # a zoo's estimator, and it learns
    return Finding(
        "note" if meant else severity(run),
        f"{what}. The mean advantage is {off:+.2g} standard deviations (median); with a baseline "
        "or whitening it is near 0.",
        f"Check the baseline of {name} (`rlzoo trace RUN`), or set whiten=batch.",
        {"mean_over_std": off},
    )


@cause(names.PULL_CORR, least=3)
def loss_does_not_follow_advantages(run: Record) -> Finding | None:
    """The policy loss does not raise the log-probs of tokens with good advantages."""
    pulls, weight = run.series(names.PULL_CORR), run.known("correction.name")
    middle, loss = median(pulls), f"policy_loss {run.known('policy_loss.name', '')}".rstrip()
    if middle > 0.45:  # losses that are correct were at 0.9 and above
        return None
    advice = (
        "Check the loss (`rlzoo check NAME`): its sign, what it detaches, whether each row uses "
    )
    advice += "its own advantages. Another learning rate does not help."
    if middle < -0.2:
        what = f"The {loss} has the wrong sign: good advantages lower the log-probs"
    elif middle == 0 and weight:
        what = f"The {loss} or the correction {weight}, which multiplies it, is exactly 0"
        advice = f"Train once without {weight} (correction.name=null)."
    elif middle == 0:
        what = f"No gradient reaches log pi through the {loss}: it is exactly 0"
    elif pulls[0] > 0.8:
        what = f"The {loss} follows the advantages at the first step only: its ratio or clipping "
        what += "does not use the policy that sampled the responses"
    else:
        what = f"The {loss} (or the whitening) hardly follows the advantages"
    return Finding(
        "problem",
        f"{what}. The correlation of -d(loss)/d(log pi) with the raw advantages is {middle:.2f} "
        "(median); correct losses have 0.9 or more.",
        advice,
        {"correlation": middle},
    )


@cause(names.RIGHT_CORR, least=3)
def reward_does_not_measure_correctness(run: Record) -> Finding | None:
    """The score does not correlate with correctness, or it is a binary check of something else."""
    values = run.series(names.RIGHT_CORR)
    middle, noise = fmean(values), noise_share(run)
    limit = 0.6 if says_yes_or_no(run) else 0.1
    if middle > limit or (len(values) < 6 and middle > -0.2):
        return None
    weights = [k for k in run.recipe if k.startswith("rewards.") and k.endswith(".weight")]
    negative = [f"{k}={run.key(k):g}" for k in weights if (run.known(k) or 1.0) < 0]
    what = "The reward is binary, but it does not check whether this response is correct"
    advice = (
        "Read samples.jsonl: which responses get a reward? It may read another answer than the "
    )
    advice += "task does, or depend on something else, such as length."
    if middle < -0.2 or negative:
        what = f"The reward favors wrong answers ({', '.join(negative) or 'no weight is negative'})"
    elif middle < 0.1:
        what = "The reward is unrelated to correctness"
    if middle < -0.8 or negative:
        advice = "Flip the sign of the reward or of its weight."
    elif noise > 0.1:
        what += f", and identical responses to a prompt score differently ({noise:.0%} of the "
        what += "scores' variance): it is noisy, or returns the score of another row or step"
        advice = "Call the reward twice with one response: the score must be the same, from this "
        advice += "row's prompt, response and answer only."
    return Finding(
        "problem",
        f"{what}. The correlation of a response's score with the task's own check is {middle:.2f} "
        f"(mean of {len(values)} steps).",
        advice,
        {"correlation": middle, "noise": noise},
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
