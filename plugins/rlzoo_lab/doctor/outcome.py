"""Rules about the outcome of a run: reward hacking, memorization, and rewards that rose and fell.

They compare training with held-out prompts, and the end of the run with its start and its best
evaluation.
"""

from collections.abc import Mapping
from statistics import fmean
from typing import Any

from rlzoo.runs import metrics as names
from rlzoo_lab.doctor.rule import SHORTEST_TREND, cause, symptom
from rlzoo_lab.doctor.series import (
    Finding,
    accuracies,
    course,
    early,
    ends,
    fallen,
    late,
    learning,
    moving_means,
    part,
    right_or_wrong,
    rises,
    spans,
    trend,
)
from rlzoo_lab.doctor.suspects import against_default, compare_first, default, nearer, unknown
from rlzoo_lab.records.record import Record


def held_out(run: Record) -> str:
    """`held-out accuracy 0.3 to 0.6`, or nothing."""
    values = accuracies(run)
    return f", held-out accuracy {values[0]:.2f} to {values[-1]:.2f}" if len(values) > 1 else ""


def _from_best(gone: tuple[str, Mapping[str, Any], Mapping[str, Any]] | None) -> str:
    """`, held out 0.98 at step 10 to 0.76`."""
    if gone is None:
        return ""
    what, best, final = gone
    return f", held out {best[what]:.2f} at step {best['step']} to {final[what]:.2f}"


def _paid_on(run: Record, gone: tuple[str, Mapping[str, Any], Mapping[str, Any]] | None) -> bool:
    """Whether the training reward is as high as at the best evaluation, or higher."""
    at, values = run.steps_of(names.REWARD), run.series(names.REWARD)
    best = gone[1]["step"] if gone else 0
    around = [v for step, v in zip(at, values, strict=True) if abs(step - best) <= 3]
    return bool(around) and late(run, names.REWARD) > fmean(around)


@symptom(names.REWARD, least=SHORTEST_TREND)
def reward_is_gamed(run: Record) -> Finding | None:
    """The training reward rises but accuracy does not."""
    corr = late(run, names.RIGHT_CORR, 0.0)  # nothing is correct at the end: no correlation
    gone = fallen(run)
    if not rises(run) or corr > 0.98 or not right_or_wrong(run):
        return None
    change, error = trend(run.series(names.REWARD))
    size = max(late(run, names.SCORE_STD, 0.0), 1e-9)
    now, error_now = trend(run.series(names.RIGHT)) if run.has(names.RIGHT) else (0.0, 0.0)
    rising = now > 2 * error_now
    lost = gone is not None and gone[0] == names.ACCURACY
    falls = now < -3 * error_now or (lost and (not rising or (corr < 0.9 and _paid_on(run, gone))))
    stuck = change > max(4 * error, 0.3 * size) and not rising and not run.improved
    if not falls and not (stuck and corr < 0.8):
        return None
    return Finding(
        "problem",
        f"The policy games the reward: it rises from {course(run)}, while accuracy "
        f"{'falls' if falls else 'does not rise'} (training "
        f"{early(run, names.RIGHT):.2f} to {late(run, names.RIGHT):.2f}"
        f"{_from_best(gone) if lost else held_out(run)}). The "
        f"score's correlation with correctness is {corr:.2f} in the last third.",
        "Read samples.jsonl: what does the reward favor instead of correct answers?",
        {"correlation": corr, "right": now, "reward": change},
    )


@cause(names.REWARD, least=SHORTEST_TREND)
def one_reward_displaces_another(run: Record) -> Finding | None:
    """On held-out prompts, one of several rewards rises while another falls from its best."""
    keys = [k for k in (run.evaluations or [{}])[-1] if k.startswith("eval/reward/")]
    if len(keys) < 2 or not rises(run):
        return None
    course = {k: [e[k] for e in run.evaluations if k in e] for k in keys}
    lost = {k: max(v) - v[-1] for k, v in course.items() if max(v) > 0.1 and v[-1] < 0.5 * max(v)}
    gained = [k for k, v in course.items() if v[-1] > v[0] and v[-1] >= 0.9 * max(v)]
    if not lost or not gained:
        return None
    what = max(lost, key=lambda k: lost[k])
    name, other = (k.removeprefix("eval/reward/") for k in (what, gained[0]))
    return Finding(
        "problem",
        f"Reward {other} displaces reward {name}: held out, {name} goes from "
        f"{max(course[what]):.3g} at its best to {course[what][-1]:.3g}, while {other} reaches "
        f"{course[gained[0]][-1]:.3g}. The policy over-optimises {other}.",
        f"Lower rewards.{other}.weight, give it a ceiling, or {nearer(run)}; read samples.jsonl.",
        {name: course[what], other: course[gained[0]]},
    )


@symptom(names.REWARD, names.DISTINCT_TEXTS, least=SHORTEST_TREND)
def texts_become_alike(run: Record) -> Finding | None:
    """In a task without correct answers, the reward rises and all prompts get the same text."""
    before, after = ends(run.series(names.DISTINCT_TEXTS))
    # One text per prompt is what a policy learns that becomes certain of its answers.
    certain = late(run, names.DISTINCT, 1.0) / run.key("rollout.samples", 1)
    if right_or_wrong(run) or not rises(run) or before < 0.3 or after > 0.6 * before:
        return None
    if 0.75 * certain < after < before and certain < 0.5:
        return None
    return Finding(
        "warning",
        f"The reward may be gamed: it rises from {course(run)}, while distinct texts among the "
        f"responses of a step fall from {before:.0%} to {after:.0%} in "
        f"{spans(run, names.DISTINCT_TEXTS)[1]}; entropy went from "
        f"{course(run, names.ENTROPY, 2)} nats per token. The task cannot check answers, so this "
        "is not certain.",
        "Read samples.jsonl: are the texts with high rewards the intended ones? If not, fix the "
        f"reward or {nearer(run)}.",
        {"first": before, "last": after},
    )


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


@symptom(names.REWARD, least=12)
def peak_and_fall(run: Record) -> Finding | None:
    """The training reward rose and then lost at least half of its gain."""
    values, third = run.series(names.REWARD), max(2, len(run.series(names.REWARD)) // 6)
    means = moving_means(values, third)
    top = max(range(len(means)), key=means.__getitem__)
    error = trend(values)[1] * (2 if third < len(values) // 3 else 1)
    lost, gained = means[top] - means[-1], means[top] - means[0]
    small = max(0.2 * max(run.series(names.SCORE_STD) or [0.0]), 0.05 * abs(means[top]))
    if lost < max(0.5 * gained, 4 * error) or gained < max(4 * error, small) or not learning(run):
        return None
    step = run.steps_of(names.REWARD)[top + third // 2]
    return Finding(
        "warning",
        f"The training reward rose from {means[0]:.3g} to {means[top]:.3g} at about step {step}, "
        f"and fell back to {means[-1]:.3g}; entropy went from {course(run, names.ENTROPY, 2)} "
        f"nats per token.{unknown(run)}",
        "Evaluate more often (eval.every) and keep the best weights (checkpoint.best=true).",
        {"peak": means[top], "last": means[-1], "step": step},
    )
