"""Rules of what holds exactly in any sound run, whatever the algorithm."""

from statistics import fmean, median

from rlzoo.runs import metrics as names
from rlzoo.runs.record import Record
from rlzoo_lab.doctor.rule import SYMPTOMS, rule
from rlzoo_lab.doctor.series import Finding, course, late, learning, spans, updates


@rule(explains=SYMPTOMS)
def not_finite(run: Record) -> Finding | None:
    """NaN or infinity among the metrics."""
    if run.steps.not_finite is None:
        return None
    step, bad = run.steps.not_finite
    return Finding(
        "problem",
        f"{bad[0]} is not finite at step {step}"
        + (f", and {len(bad) - 1} other metrics" if bad[1:] else "") + ".",
        "Look at what the reward returns there; lower actor.lr and critic.lr.",
        {"step": step, "metrics": bad},
    )  # fmt: skip


@rule(names.LOG_PROB_GAP, explains=(*SYMPTOMS, "ratio_not_one_at_first", "update_too_large"))
def sampler_and_policy_disagree(run: Record) -> Finding | None:
    """What tokens were drawn from is not the policy that is trained."""
    gaps = run.series(names.LOG_PROB_GAP)
    gap = fmean(gaps)
    if gap < 1e-2 or run.key("correction.name"):
        return None
    top_k, top_p = run.key("rollout.top_k", 0), run.key("rollout.top_p", 1.0)
    if top_k > 0 or top_p < 1:
        keys = [f"rollout.top_k={top_k}"] * (top_k > 0) + [f"rollout.top_p={top_p:g}"] * (top_p < 1)
        why = f"{' and '.join(keys)} cut the distribution"
        advice = "Set rollout.top_k=0 rollout.top_p=1, or weigh the loss by correction=NAME."
    elif behind := run.key("rollout.staleness", 0):
        why = f"rollout.staleness={behind} samples by the weights of {behind} steps ago"
        advice = "Weigh the loss by correction=NAME, lower rollout.staleness or actor.lr."
    elif gaps[0] < 0.1 * gap:
        why = (
            f"the sampler draws from old weights: the gap is {gaps[0]:.1g} at the first step and "
            f"grows to {late(run, names.LOG_PROB_GAP):.2g} as training moves the policy"
        )
        advice = "Hand the sampler the trained weights after each update."
    else:
        why = "sampling and scoring compute different numbers (precision, dropout, temperature)"
        advice = "Sample and score in one precision and at one temperature, or use correction=NAME."
    return Finding(
        "problem" if gap > 0.05 else "note" if learning(run) else "warning",
        f"Samples are off-policy: their log-probabilities differ by {gap:.2g} nats per token from "
        f"the policy's, because {why}.",
        advice,
        {"gap": gap, "first": gaps[0]},
    )


@rule(names.RATIO, names.PPO_KL, least=3, explains=SYMPTOMS)
def ratio_not_one_at_first(run: Record) -> Finding | None:
    """The ratio differs from 1 before any update changed the policy.

    The first optimizer step of a step is measured by itself. Runs of before have means over all
    of them: with one update per batch they say the same; with more they mix in the updates, yet the
    mean of pi / pi_old over samples of pi_old is 1 whatever pi is.
    """
    exact = run.key("device") == "cpu" or run.key("model.autocast") == "none"
    gaps = run.series(names.FIRST_RATIO_GAP)
    ratios, kls = run.series(names.RATIO), run.series(names.PPO_KL)
    if gaps:
        away, right = median(gaps), median(gaps) <= (1e-3 if exact else 0.02)
        how = f"abs(log pi - log pi_old) is {away:.2g} nats per token in the first optimizer step"
    else:
        away, kl = median(abs(r - 1) for r in ratios), median(abs(k) for k in kls)
        # Updates move the mean of a small batch too, the less the smaller the KL they make.
        right = max(away, kl) <= 1e-3 if updates(run) == 1 else away <= 0.02 + 2 * kl
        how = f"the ratio of new to old policy is off by {away:.2g}"
    if right:
        return None
    return Finding(
        "problem",
        f"old_log_probs are not of the policy that is trained: {how} of a step (median over "
        f"{len(gaps or ratios)} steps), where nothing has changed yet and it must be 0 and the "
        "ratio 1. Every ratio and every clip after it is wrong.",
        "rollout.old_log_probs=recomputed; look for log-probs that are kept from another step, "
        "another temperature or a lower precision.",
        {"off_by": away, "updates_per_batch": updates(run)},
    )


@rule(names.ADVANTAGE_CORR, names.SCORE_STD, least=3, explains=SYMPTOMS)
def advantages_do_not_follow_scores(run: Record) -> Finding | None:
    """Responses that score better do not get the better advantages: the estimator is at fault."""
    values = run.series(names.ADVANTAGE_CORR)
    steps = len(run.series(names.SCORE_STD))
    middle = median(values)
    if middle > 0.1 or len(values) < 3 or len(values) < steps / 4:
        return None
    wrong = middle < -0.2
    return Finding(
        "problem" if wrong else "warning",
        f"The advantages {'fall where scores rise' if wrong else 'do not follow the scores'}: the "
        f"correlation of a response's score with its mean raw advantage is {middle:.2f} (median of "
        f"{len(values)} steps), and a sound estimator's is well above 0."
        + (" The policy unlearns what scores well." if wrong else ""),
        "Look for a wrong sign in the estimator (`rlzoo check NAME`)."
        if wrong
        else "Look at one response with `rlzoo trace RUN`, and ask `rlzoo check NAME`: rewards "
        "that are read at the wrong token or row, or a critic whose errors drown them.",
        {"correlation": middle, "steps": len(values)},
    )


@rule(names.RIGHT_CORR, least=3, explains=(*SYMPTOMS, "reward_scale"))
def reward_is_not_what_is_right(run: Record) -> Finding | None:
    """The score of a response says nothing of whether the task holds it for right, or is a verdict
    itself, and another one."""
    values = run.series(names.RIGHT_CORR)
    middle, verdict = fmean(values), says_yes_or_no(run)
    if middle > (0.6 if verdict else 0.1) or (len(values) < 6 and middle > -0.2):
        return None
    wrong = middle < -0.2
    before, after = right_ends(run)
    heldout = "" if before is None else f" Held-out accuracy went {before:.2f} to {after:.2f}."
    weights = [k for k in run.recipe if k.startswith("rewards.") and k.endswith(".weight")]
    negative = [f"{k}={run.key(k):g}" for k in weights if run.key(k, 1.0) < 0]
    what = (
        "The reward pays for what is wrong"
        if wrong
        else "The reward has nothing to do with what is right"
        if middle < 0.1
        else "The reward is a verdict of yes or no, and not on whether this response is right"
    )
    return Finding(
        "problem",
        f"{what}{' (' + ', '.join(negative) + ')' if negative else ''}: the correlation of a "
        f"response's score with the task's own verdict is {middle:.2f} (mean of {len(values)} "
        f"steps); reward {course(run)}, response length {course(run, names.LENGTH)}." + heldout,
        "Turn the sign of the reward or of its weight."
        if wrong
        else "Read samples.jsonl beside the scores: does the reward read the right answer of the "
        "right row, or something else, such as length?",
        {"correlation": middle, "before": before, "after": after},
    )


def says_yes_or_no(run: Record) -> bool:
    """Whether scores take two values: then their variance is (mean - min)(max - mean)."""
    columns = [run.series(f"score/{x}") for x in ("mean", "std", "min", "max")]
    if not all(columns):
        return False
    gaps = (
        abs(sd**2 - (mean - low) * (high - mean)) / max((high - low) ** 2, 1e-12)
        for mean, sd, low, high in zip(*columns, strict=True)
        if high > low
    )
    return max(gaps, default=1.0) < 1e-4


@rule("rewards/mean", names.REF_KL_PER_RESPONSE, least=3, explains=SYMPTOMS)
def kl_pays(run: Record) -> Finding | None:
    """The KL in the reward is paid, not charged."""
    coef, far = late(run, names.KL_COEF, 0.0), late(run, names.REF_KL_PER_RESPONSE)
    if run.key("kl.place") != "reward" or far < 0.05 or coef <= 0:
        return None
    paid = late(run, "rewards/mean") - late(run, names.REWARD)
    if paid < 0.3 * coef * far:
        return None
    return Finding(
        "problem",
        f"The KL penalty has the wrong sign: responses are {far:.2g} nats from the reference, "
        f"which at kl.coef={coef:g} must cost {coef * far:.2g}, and rewards are {paid:.2g} above "
        "the scores. The policy is paid for running away.",
        "Look at the sign of the KL penalty (`rlzoo check NAME`).",
        {"paid": paid, "kl": far, "coef": coef},
    )


def right_ends(run: Record) -> tuple[float | None, float | None]:
    """Held-out accuracy before and after, where there is such a thing."""
    values = [line[names.ACCURACY] for line in run.evaluations if names.ACCURACY in line]
    return (values[0], values[-1]) if values else (None, None)


@rule(names.AT_END, least=3, explains=SYMPTOMS)
def reward_at_the_wrong_index(run: Record) -> Finding | None:
    """Nothing is ever paid at the last token, where a verdict on the whole answer stands."""
    values = run.series(names.AT_END)
    part_by_part = max(run.series(names.PAID_TOKENS), default=1.0) > 1.5  # a word, a turn, a step
    if max(values) > 0.02 or part_by_part:
        return None
    return Finding(
        "problem",
        f"The reward stands at the wrong token: in {len(values)} steps nothing was ever paid at a "
        "response's last action, where the verdict on a whole answer belongs. Tokens after the "
        "one that is paid get no credit, and what falls behind the end of a response is lost.",
        "Return one score per response, or put it at the last action of the mask; "
        "`rlzoo trace RUN` shows where it lands.",
        {"share_at_end": fmean(values)},
    )


@rule(names.DISTINCT, least=3, explains=("reward_flat", "held_out_falls", "no_signal_in_groups"))
def one_prompt(run: Record) -> Finding | None:
    """All groups of a step answer the same prompt."""
    prompts, values = run.key("rollout.prompts", 1), run.series(names.DISTINCT)
    if prompts < 3 or max(values) * prompts > 1.5:
        return None
    return Finding(
        "problem",
        f"All {prompts} prompts of a step are the same prompt, in each of {len(values)} steps "
        f"({spans(run, names.DISTINCT)[0]} and on): one question is asked {prompts} times.",
        "Look at the task's draw: it must give different examples, a function of its generator.",
        {"share_distinct": fmean(values), "prompts": prompts},
    )
