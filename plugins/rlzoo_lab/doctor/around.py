"""Rules about the end of a run, its evaluation and its teacher."""

import math
from statistics import fmean

from rlzoo.runs import metrics as names
from rlzoo_lab.doctor.rule import SHORTEST_TREND, aside, cause
from rlzoo_lab.doctor.series import (
    Finding,
    early,
    late,
    learning,
    length_limit,
    right_or_wrong,
    spans,
    updates,
)
from rlzoo_lab.numbers import option_text
from rlzoo_lab.records.record import Record

TEACHER_KL = "actor/teacher_kl"


def rows(run: Record) -> int:
    """Responses of a step whose correctness is recorded."""
    return min(64, run.key("rollout.prompts", 64) * run.key("rollout.samples", 1))


@cause(names.REWARD)
def ended_early(run: Record) -> Finding | None:
    """A budget or a stop rule ended the run in its first third."""
    planned, done = run.key("train.steps"), run.summary.get("steps", 0)
    why = str(run.summary.get("stopped", ""))
    if not planned or not done or done > planned / 3 or "reached the target" in why:
        return None
    budget = [f"{key}={option_text(run.key(key))}" for key in ("train.tokens", "train.minutes")
              if run.key(key)]  # fmt: skip
    said = " or ".join(budget) if why in ("budget", "") and budget else why
    if not said or said == "budget":
        return None
    key = "the stop rule (stop.patience, stop.min_delta, stop.max_kl)" if why == said else said
    return Finding(
        "warning",
        f"The run ended after {done} of {planned} steps: {said}. "
        f"{done * updates(run)} optimizer steps are too few to judge the method.",
        f"Loosen {key}, or set train.steps={done} if this was intended.",
        {"steps": done, "planned": planned},
    )


@aside(names.REWARD, names.RIGHT)
def evaluated_otherwise(run: Record) -> Finding | None:
    """Training and held-out accuracy differ because evaluations sample differently."""
    differ = [
        f"eval.{k}={option_text(run.key(f'eval.{k}'))} (training: {option_text(usual)})"
        for k in ("temperature", "top_k", "top_p")
        if run.key(f"eval.{k}") != (usual := run.key(f"rollout.{k}"))
    ]
    before = run.evaluations[0].get(names.ACCURACY) if run.evaluations else None
    if not differ or before is None:
        return None
    first, when = fmean(run.series(names.RIGHT)[:2]), "Before any training"
    n = rows(run)
    error = math.sqrt(0.25 / n + 0.25 / max(1, run.key("eval.samples", n)))
    if abs(first - before) < max(0.1, 3 * error):
        first, when = late(run, names.RIGHT), "At the end"
        before = run.evaluations[-1].get(names.ACCURACY, first)
    if abs(first - before) < max(0.1, 3 * error):
        return None
    return Finding(
        "note" if before > first else "warning",  # sharper samples are a common choice
        f"The evaluation samples differently from training: {', '.join(differ)}. "
        f"{when}, held-out accuracy is {before:.0%} and training accuracy is "
        f"{first:.0%}, so the evaluation does not measure the policy that is trained.",
        "Set eval.temperature, eval.top_k and eval.top_p to the values of rollout.*.",
        {"held_out": before, "training": first},
    )


@cause(names.REWARD, least=3)
def teacher_teaches_nothing(run: Record) -> Finding | None:
    """The teacher agrees with the policy from the start, or the policy never comes closer to it."""
    if not run.has(TEACHER_KL):
        return None
    values = run.series(TEACHER_KL)
    before, after = early(run, TEACHER_KL), late(run, TEACHER_KL)
    who = run.known("teacher.name") or run.known("teacher.path") or "the teacher"
    far = before > 0.3 and after > 0.75 * before and len(values) >= SHORTEST_TREND
    itself = who == run.known("model.name") and abs(values[0]) < 1e-3
    if max(map(abs, values)) < 0.05 or itself:
        what = (
            f"The teacher ({who}) agrees with the policy from the first step: their KL is "
            f"{abs(values[0]):.2g} there and at most {max(map(abs, values)):.2g} nats per "
            "token, so distillation has no signal."
        )
        advice = "Use a teacher that is better at this task than the policy (teacher.path)."
    elif far and not learning(run):
        then, now = spans(run, TEACHER_KL)
        what = (
            f"The policy does not approach the teacher ({who}): {before:.2g} nats per token in "
            f"{then}, {after:.2g} in {now}. Its log-probabilities are paired with other tokens or "
            f"have the wrong sign (estimator {run.known('estimator.name', '')}), or it was trained "
            "for another task, format or tokenizer."
        )
        advice = (
            "Run `rlzoo trace RUN` and `rlzoo check` on the estimator; then evaluate the teacher "
            "on this task: rlzoo eval model.path=TEACHER task=TASK."
        )
    else:
        return None
    return Finding("problem", what, advice, {"first": before, "last": after})


@cause(names.REWARD, names.TRUNCATED, least=3)
def base_never_ends_right(run: Record) -> Finding | None:
    """No answer is ever correct, in training or held out, and nearly all are truncated."""
    found = [e.get(k, 0.0) for e in run.evaluations for k in (names.ACCURACY, names.GREEDY)]
    cut = run.series(names.TRUNCATED)
    if not found or max(found) > 0 or not right_or_wrong(run) or min(cut) < 0.8:
        return None
    if max(run.series(names.RIGHT), default=0.0) > 0 or max(map(abs, run.series(names.REWARD))) > 0:
        return None
    return Finding(
        "problem",
        f"No response was ever correct, whether sampled or greedy, and {fmean(cut):.0%} reach "
        f"{length_limit(run)}. Either the model "
        f"({run.known('model.name') or run.known('model.path', '?')}) was not trained for this "
        f"task ({run.known('task.name', '?')}) or its format, or the limit truncates every answer.",
        "Read samples.jsonl. If the texts are not answers, use another base model or make one "
        "(`rlzoo base TASK --out DIR`, `rlzoo sft`). If they are truncated answers, raise "
        "rollout.max_new_tokens.",
        {"truncated": fmean(cut)},
    )
