"""Rules about data and evaluations: prompts, answers, what is held out, and when a run ended.

They compare the start of training with the first evaluation, and read samples.jsonl.
"""

import math
from statistics import fmean
from zlib import crc32

from rlzoo.runs import metrics as names
from rlzoo_lab.data.record import Record
from rlzoo_lab.doctor.rule import SHORTEST_TREND, aside, cause
from rlzoo_lab.doctor.series import (
    Finding,
    early,
    late,
    learning,
    right_or_wrong,
    samples_alike,
    says_yes_or_no,
    spans,
)
from rlzoo_lab.doctor.suspects import own_data
from rlzoo_lab.stats import distinct, wilson
from rlzoo_lab.view.numbers import option_text

TEACHER_KL, LIMIT = "actor/teacher_kl", "rollout.max_new_tokens"
FIRST_STEPS = 3  # the policy has hardly moved
# How a task of rows makes prompts and reads answers and responses, and what is usual.
READS = {"task.template": "", "task.answer": "answer", "task.answer_pattern": "",
         "task.response_pattern": "", "task.system": "", "task.prompt": "prompt"}  # fmt: skip


@cause(names.REWARD, names.RIGHT, least=FIRST_STEPS)
def data_differ_before_training(run: Record) -> Finding | None:
    """Before any learning, accuracy differs between training and held-out prompts."""
    held = run.evaluations[0].get(names.ACCURACY) if run.evaluations else None
    if run.key("sampler.name") not in (None, "transformers"):  # it may replace groups
        return None
    if held is None or run.evaluations[0]["step"] != 0 or not samples_alike(run):
        return None
    start, first = run.series(names.RIGHT)[0], fmean(run.series(names.RIGHT)[:FIRST_STEPS])
    if start == held or (first - held) / (start - held) > 2 or (first > held) != (start > held):
        return None  # the first updates made the difference
    prompts = run.key("rollout.prompts", 16)
    n, m = FIRST_STEPS * min(64, prompts), max(1, run.key("eval.samples", 64))
    middle = (n * first + m * held) / (n + m)  # samples of a prompt are alike: count prompts
    error = math.sqrt(max(middle * (1 - middle), 0.01) * (1 / n + 1 / m))
    if abs(first - held) < max(3.5 * error, 0.15):
        return None
    common = f"Before any training, {first:.0%} of the training responses (steps 1 to "
    common += f"{FIRST_STEPS}) and {held:.0%} of the held-out ones are correct with the same "
    common += "sampling, so the data differ. "
    odd = [f"{k}={option_text(run.known(k))}" for k, usual in READS.items()
           if run.known(k, usual) != usual]  # fmt: skip
    where = f" The task reads its rows with {', '.join(odd)}." if odd else ""
    if first < held:
        what = "Answers (labels) of training prompts are wrong or in another format, or harder."
        advice = "Read samples.jsonl: has each prompt its answer, in the format of the responses?"
    else:
        what = (
            "Held-out prompts have another format, source or rule, or are harder: accuracy there "
        )
        what += "does not show what training achieves."
        advice = "Compare a held-out prompt and answer with a training one, character by character."
    return Finding("problem", common + what + where, advice, {"training": first, "held_out": held})


@cause(names.REWARD)
def prompts_are_cut(run: Record) -> Finding | None:
    """Nearly all prompts are as long as the limit at which prompts are cut."""
    limit, how = run.key("task.max_prompt"), str(run.key("task.too_long", ""))
    length = fmean(run.series("prompt_length/mean") or [0.0])
    if not limit or not how.startswith("cut") or length < 0.9 * limit:
        return None
    side = "start" if how == "cut_start" else "end"
    return Finding(
        "problem" if not run.improved else "warning",
        f"Prompts are truncated: task.max_prompt={limit} (task.too_long={how}), and the mean "
        f"prompt has {length:.1f} tokens, so most have lost their {side}, held-out ones, too.",
        "Raise task.max_prompt, or drop longer prompts (task.too_long=drop).",
        {"limit": limit, "mean": length},
    )


@cause(names.TRUNCATED, least=1)
def length_limit_too_short(run: Record) -> Finding | None:
    """Responses were truncated before any update could lengthen them and still are."""
    values = run.series(names.TRUNCATED)
    at_once, tail, limit = values[0], late(run, names.TRUNCATED), run.known(LIMIT, "unknown")
    judged = right_or_wrong(run) or says_yes_or_no(run)
    if at_once < 0.3 or max(at_once, tail) < 0.4 or not judged:
        return None
    if tail < 0.5 * at_once and learning(run):  # the limit no longer binds
        return None
    never = " No response ends by itself: the end-of-sequence token may never be sampled."
    return Finding(
        "problem",
        f"{LIMIT}={limit}: {at_once:.0%} of the responses are truncated from the first step on, "
        f"{tail:.0%} in {spans(run, names.TRUNCATED)[1]}; a truncated response is rarely a whole "
        f"answer.{never if min(values) > 0.98 else ''}",
        "Raise rollout.max_new_tokens. If response/truncated stays high, check the end-of-sequence "
        "token (model, chat template, sampler).",
        {"first": at_once, "last": tail},
    )


@aside(names.REWARD)
def held_out_prompts_are_trained_on(run: Record) -> Finding | None:
    """Some evaluation prompts are also training prompts."""
    if not own_data(run):  # some tasks of the zoo have few prompts on purpose
        return None
    held = set(map(int, run.by_prompt.get("prompt", ())))
    rows = (s for s in run.samples if {"prompt", "answer"} <= s.keys())
    seen = {crc32(repr((s["prompt"], repr(s["answer"]))).encode()) for s in rows}
    if len(held) < 3 or len(seen) < 8 or len(held & seen) < 0.5 * min(len(held), len(seen)):
        return None
    return Finding(
        "warning",
        f"{len(held & seen)} of {len(seen)} training prompts in samples.jsonl are also held "
        "out, so held-out accuracy does not show whether the policy generalizes.",
        "Split the data so that no prompt is in both splits (task.test_path, task.test_fraction).",
        {"both": len(held & seen), "training": len(seen), "held_out": len(held)},
    )


@aside(names.REWARD, names.RIGHT)
def evaluation_samples_differently(run: Record) -> Finding | None:
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
    n = min(64, run.key("rollout.prompts", 64) * run.key("rollout.samples", 1))
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


@aside()
def evaluation_too_small(run: Record) -> Finding | None:
    """An evaluation has too few prompts."""
    if not run.evaluations:
        return None
    n, index = run.key("eval.samples", 1024), run.by_prompt.get("index")
    different = n if index is None else min(n, distinct(index))
    if different >= 48:
        return None
    low, high = wilson(different // 2, different)
    # Some tasks of the zoo have few prompts on purpose.
    few = n < 48 or (high - low > 2 / 3 and own_data(run))
    return Finding(
        "warning" if few else "note",
        f"eval.samples={n} come from {different} different prompts: an accuracy of 0.5 has the "
        f"interval [{low:.2f}, {high:.2f}].",
        "Set eval.samples=512, and add held-out prompts (task.test_fraction, task.test_path).",
        {"samples": n, "prompts": different, "half_width": (high - low) / 2},
    )


@aside()
def evaluation_cut_off(run: Record) -> Finding | None:
    """Held-out responses are truncated but those of training are not."""
    cut = [e["eval/truncated"] for e in run.evaluations if "eval/truncated" in e]
    if not cut or cut[-1] < 0.2 or cut[-1] < 2 * late(run, names.TRUNCATED, 1.0) + 0.1:
        return None
    limit = run.known("eval.max_new_tokens") or run.known("rollout.max_new_tokens")
    return Finding(
        "warning",
        f"eval.max_new_tokens{'' if limit is None else f'={limit}'}: {cut[-1]:.0%} of the held-out "
        f"responses are truncated, but only {late(run, names.TRUNCATED):.0%} of those in training. "
        "The held-out accuracy is too low.",
        "Remove eval.max_new_tokens, or set it to rollout.max_new_tokens.",
        {"held_out": cut[-1], "training": late(run, names.TRUNCATED)},
    )


@cause(names.REWARD, least=3)
def teacher_has_no_effect(run: Record) -> Finding | None:
    """The teacher agrees with the policy from the start, or the policy never comes closer to it."""
    if not run.has(TEACHER_KL):
        return None
    values = run.series(TEACHER_KL)
    before, after = early(run, TEACHER_KL), late(run, TEACHER_KL)
    who = run.known("teacher.name") or run.known("teacher.path") or "the teacher"
    far = before > 0.3 and after > 0.75 * before and len(values) >= SHORTEST_TREND
    itself = who == run.known("model.name") and abs(values[0]) < 1e-3
    if max(map(abs, values)) < 0.05 or itself:
        what = f"The teacher ({who}) agrees with the policy from the first step: the KL is at most "
        what += f"{max(map(abs, values)):.2g} nats per token, so distillation has no signal."
        advice = "Use a teacher that is better at this task than the policy (teacher.path)."
    elif far and not learning(run):
        then, now = spans(run, TEACHER_KL)
        what = f"The policy does not approach the teacher ({who}): {before:.2g} nats per token in "
        what += f"{then}, {after:.2g} in {now}. Its log-probs belong to other tokens or have the "
        what += f"wrong sign (estimator {run.known('estimator.name', '')}), or it was trained for "
        what += "another task, format or tokenizer."
        advice = "Run `rlzoo check` on the estimator, then rlzoo eval model.path=TEACHER task=TASK."
    else:
        return None
    return Finding("problem", what, advice, {"first": before, "last": after})


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
        f"The run ended after {done} of {planned} steps, too few to judge the method: {said}.",
        f"Loosen {key}, or set train.steps={done} if this was intended.",
        {"steps": done, "planned": planned},
    )
