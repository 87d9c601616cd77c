"""Rules of what holds exactly in any sound run, whatever the algorithm."""

import itertools
from statistics import fmean, median

from rlzoo.runs import metrics as names
from rlzoo.runs.record import Record
from rlzoo_lab.doctor.rule import SYMPTOMS, rule
from rlzoo_lab.doctor.series import (
    Finding,
    course,
    early,
    late,
    learning,
    right_or_wrong,
    spans,
    updates,
)
from rlzoo_lab.doctor.suspects import foreign


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
    if middle > 0.22 or len(values) < 3 or len(values) < steps / 4:
        return None
    if run.has("actor/teacher_kl"):  # a teacher is followed, not the score
        return None
    wrong = middle < -0.2
    columns = {k.split(".")[1] for k in run.recipe if k.startswith("columns.")}
    other = f" (The recipe's columns, {', '.join(sorted(columns))}, may teach it something else.)"
    return Finding(
        "problem" if wrong and not columns else "warning",
        f"The advantages {'fall where scores rise' if wrong else 'do not follow the scores'}: the "
        f"correlation of a response's score with its mean raw advantage is {middle:.2f} (median of "
        f"{len(values)} steps), and a sound estimator's is well above 0."
        + (" The policy unlearns what scores well." if wrong else "")
        + (other if columns else ""),
        "Look for a wrong sign in the estimator (`rlzoo check NAME`)."
        if wrong
        else "Look at one response with `rlzoo trace RUN`, and ask `rlzoo check NAME`: rewards "
        "that are read at the wrong token or row, or a critic whose errors drown them.",
        {"correlation": middle, "steps": len(values)},
    )


@rule(names.PULL_CORR, least=3, explains=(*SYMPTOMS, "policy_does_not_move"))
def loss_does_not_follow_advantages(run: Record) -> Finding | None:
    """The policy loss does not raise what has a good advantage, or lowers it."""
    middle = median(run.series(names.PULL_CORR))
    if middle > 0.1:
        return None
    loss = f"policy_loss {run.key('policy_loss.name')}"
    what = (
        f"The {loss} has the wrong sign: it lowers the log-probabilities of tokens with good "
        "advantages"
        if middle < -0.2
        else f"No gradient reaches log pi through the {loss}: it is exactly 0"
        if middle == 0
        else f"The {loss} (or the whitening) does not follow the advantages"
    )
    return Finding(
        "problem",
        f"{what}. The correlation of -d(loss)/d(log pi) with the raw advantages is {middle:.2f} "
        f"(median), and a sound loss's is well above 0; the gradient's length is "
        f"{late(run, 'actor/grad_norm', 0.0):.2g}, the reward goes {course(run)}.",
        "Look at the loss: its sign, what is detached, and whether each row meets its own "
        "advantages (`rlzoo check NAME`). No learning rate mends it.",
        {"correlation": middle},
    )


@rule(names.UNTAUGHT, least=3, explains=(*SYMPTOMS, "advantage_at_the_end_is_off"))
def tokens_without_advantage(run: Record) -> Finding | None:
    """Tokens of a response get no advantage though others of it do: credit is lost on the way."""
    share = median(run.series(names.UNTAUGHT))
    if share < 0.9:
        return None
    return Finding(
        "problem" if not learning(run) else "warning",
        f"Credit is lost: in {share:.0%} of the responses that are taught, the first or the last "
        f"token gets nothing (responses have {late(run, names.LENGTH):.1f} tokens): its advantage "
        "or its gradient is exactly 0. Advantages that stand one token late or early leave one "
        "end without any; so does a mask, of the advantages or of the loss, that leaves tokens "
        "out.",
        "Look at one response with `rlzoo trace RUN`: at which tokens is the advantage 0? If at "
        "none, look at the policy loss; then ask `rlzoo check NAME`.",
        {"share": share},
    )


@rule(names.LAST_CORR, least=3, explains=SYMPTOMS)
def advantage_at_the_end_is_off(run: Record) -> Finding | None:
    """At the last action nothing is left to come: the advantage is its reward less V."""
    middle = median(run.series(names.LAST_CORR))
    if middle > 0.8 or late(run, names.SCORE_STD, 1.0) < 1e-6:
        return None
    return Finding(
        "problem" if middle < 0.3 else "warning",
        f"The advantage at a response's last action is not its reward less V: their correlation "
        f"is {middle:.2f} (median), and 1 for every lambda. The estimator reads another token's "
        "reward or value, adds a baseline that knows the action, or shifts its result.",
        "Look at the last tokens with `rlzoo trace RUN`, and ask `rlzoo check` and "
        "`rlzoo diagnose`; the critic and the rates are not at fault.",
        {"correlation": middle},
    )


def noise_share(run: Record) -> float:
    """The share of the scores' variance that one text, as an answer to one prompt, has."""
    spread = late(run, names.SCORE_STD, 0.0)
    return min(1.0, (late(run, names.SCORE_NOISE, 0.0) / spread) ** 2) if spread > 1e-9 else 0.0


@rule(names.RIGHT_CORR, least=3, explains=(*SYMPTOMS, "reward_scale",
      "reward_is_gamed", "reward_at_the_wrong_index"))  # fmt: skip
def reward_is_not_what_is_right(run: Record) -> Finding | None:
    """The score of a response says nothing of whether the task holds it for right, or is a verdict
    itself, and another one."""
    values = run.series(names.RIGHT_CORR)
    middle, verdict, noise = fmean(values), says_yes_or_no(run), noise_share(run)
    if middle > (0.6 if verdict else 0.1) or (len(values) < 6 and middle > -0.2):
        return None
    before, after = right_ends(run)
    heldout = "" if before is None else f" Held-out accuracy went {before:.2f} to {after:.2f}."
    weights = [k for k in run.recipe if k.startswith("rewards.") and k.endswith(".weight")]
    negative = [f"{k}={run.key(k):g}" for k in weights if run.key(k, 1.0) < 0]
    turned = middle < -0.8 or bool(negative)
    what = (
        "The reward pays for what is wrong"
        if middle < -0.2 or turned
        else "The reward has nothing to do with what is right"
        if middle < 0.1
        else "The reward is a verdict of yes or no, and not on whether this response is right"
    )
    random = noise > 0.1 and (
        f" One and the same response to a prompt scores differently ({noise:.0%} of the scores' "
        "variance): noise, or the score of another row or of an earlier step."
    )
    return Finding(
        "problem",
        f"{what}{' (' + ', '.join(negative) + ')' if negative else ''}: the correlation of a "
        f"response's score with the task's own verdict is {middle:.2f} (mean of {len(values)} "
        f"steps); reward {course(run)}, response length {course(run, names.LENGTH)}."
        f"{random or ''}{heldout}",
        "Turn the sign of the reward or of its weight."
        if turned
        else "Call the reward twice with one response: it must give the same score, from this "
        "row's prompt, response and answer alone."
        if random
        else "Read samples.jsonl beside the scores: which responses are paid? The reward reads "
        "another answer than the task does, or something else, such as length.",
        {"correlation": middle, "before": before, "after": after, "noise": noise},
    )


@rule(names.SCORE_NOISE, names.SCORE_STD, least=3, explains=(*SYMPTOMS, "reward_scale"))
def reward_is_noisy(run: Record) -> Finding | None:
    """One and the same response to a prompt gets different scores."""
    share = noise_share(run)
    if share < 0.1:
        return None
    known = run.has(names.RIGHT_CORR) and late(run, names.RIGHT_CORR)
    corr = f" Its correlation with what is right is {known:.2f}." if known else ""
    severity = "problem" if not learning(run) else "warning" if share > 0.5 else "note"
    if run.improved and not any(foreign(run)):  # a task of the zoo means its noise
        severity = "note"
    return Finding(
        severity,
        f"The reward is noisy: one and the same response to a prompt scores differently, by a "
        f"standard deviation of {late(run, names.SCORE_NOISE):.2g}, which is {share:.0%} of the "
        f"scores' variance ({late(run, names.SCORE_STD):.2g} squared).{corr} Noise (in some tasks "
        f"meant), or the score of another row or of an earlier step; reward {course(run)}.",
        "Make the score follow from this row's prompt, response and answer alone; where it cannot "
        "(a judge that is sampled), average several calls.",
        {"share": share},
    )


@rule(names.REWARD, names.SCORE_STD, least=6, explains=SYMPTOMS)
def reward_jumps_between_steps(run: Record) -> Finding | None:
    """The mean reward moves from step to step by more than the spread of its rows allows."""
    values, rows = run.series(names.REWARD), run.key("rollout.prompts", 64)
    jumps = median(abs(b - a) for a, b in itertools.pairwise(values)) / 0.954
    due = median(run.series(names.SCORE_STD)) / rows**0.5
    if jumps < 4 * due or due < 1e-6 or run.has("turns/mean"):
        return None
    return Finding(
        "warning" if learning(run) else "problem",
        f"The reward of a whole step jumps: its mean changes by {jumps:.2g} from step to step, "
        f"where scores that differ by {median(run.series(names.SCORE_STD)):.2g} within a step of "
        f"{rows} prompts let it change by {due:.2g}. Something adds noise to all rows of a step "
        "at once, which an estimator without a baseline of its group takes for credit.",
        "Look for what the reward takes from outside the row: the step, a clock, a running "
        "mean or a random offset.",
        {"jumps": jumps, "due": due},
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


@rule(names.DISTINCT_IN_GROUP, names.ENTROPY, least=3, explains=(*SYMPTOMS,
      "policy_does_not_move"))  # fmt: skip
def samples_are_copies(run: Record) -> Finding | None:
    """All samples of a prompt are one text, though the policy is far from sure."""
    samples, entropy = run.key("rollout.samples", 1), early(run, names.ENTROPY)
    same = early(run, names.DISTINCT_IN_GROUP)
    if samples < 2 or same > 1.05 / samples or entropy < 0.15:
        return None
    return Finding(
        "problem",
        f"The {samples} samples of a prompt are copies: {same:.0%} of a group's texts differ, "
        f"which is one text for each prompt, at an entropy of {entropy:.2g} nats per token. "
        "All rows draw with the same random numbers, or nothing is drawn at all.",
        "Look at the sampler: each row needs random numbers of its own, and rollout.top_k=0; "
        "rollout.samples does not help.",
        {"distinct": same, "entropy": entropy},
    )


@rule(names.REF_KL, explains=("kl_too_strong", "kl_exploding", "reward_flat", "reward_falling"))
def reference_is_another_policy(run: Record) -> Finding | None:
    """Before the first update the policy is the reference: their KL must be 0."""
    first = abs(run.series(names.REF_KL)[0])
    if run.steps_of(names.REF_KL)[0] != 1 or first < 0.01:
        return None
    return Finding(
        "problem",
        f"The reference is not the policy that the run began with: at step 1 they are already "
        f"{first:.2g} nats per token apart, and the KL penalty (kl.coef={run.key('kl.coef')}) "
        "pulls to something else.",
        "Look at which weights, temperature and precision the reference's log-probabilities are "
        "of.",
        {"first": first},
    )


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
    if max(values) > 0.02 or part_by_part or not right_or_wrong(run):
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
