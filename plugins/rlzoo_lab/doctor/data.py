"""Rules about data: prompts, answers, and how responses are checked.

They compare the start of training with the first evaluation, and read samples.jsonl.
"""

import math
from statistics import fmean
from typing import Any
from zlib import crc32

from rlzoo.runs import metrics as names
from rlzoo_lab.doctor.follows import follows, texts
from rlzoo_lab.doctor.rule import aside, cause
from rlzoo_lab.doctor.series import (
    Finding,
    course,
    late,
    learning,
    right_or_wrong,
    samples_alike,
    says_yes_or_no,
)
from rlzoo_lab.doctor.suspects import own_data
from rlzoo_lab.numbers import option_text
from rlzoo_lab.records.record import Record

FIRST_STEPS = 3  # the policy has hardly moved
# How a task of rows makes prompts and reads answers and responses, and what is usual.
READS = {"task.template": "", "task.answer": "answer", "task.answer_pattern": "",
         "task.response_pattern": "", "task.system": "", "task.prompt": "prompt"}  # fmt: skip


def reads(run: Record, keys: tuple[str, ...] = tuple(READS)) -> str:
    """`task.answer=a, task.template='{a}='`: the options that are not at their defaults."""
    return ", ".join(
        f"{key}={option_text(run.known(key))}"
        for key in keys
        if run.known(key, READS[key]) != READS[key]
    )


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
    common = (
        f"Before any training, {first:.0%} of the training responses (steps 1 to {FIRST_STEPS}) "
        f"and {held:.0%} of the held-out responses are correct, although both use the same "
        "sampling, so training and held-out data differ. "
    )
    key = reads(run)
    where = f" The task reads its rows with {key}." if key else ""
    if first < held:
        what = (
            "The answers (labels) of the training prompts are wrong or in another format, or "
            "these prompts are harder."
        )
        advice = (
            "Read samples.jsonl: does each answer belong to its prompt, and is its format that of "
            "the responses?"
        )
    else:
        what = (
            "The held-out prompts differ in format, source or rule from the training prompts, or "
            "are harder. Held-out accuracy does not show what training achieves."
        )
        advice = "Compare a held-out prompt and answer with a training one, character by character."
    return Finding("problem", common + what + where, advice, {"training": first, "held_out": held})


def _alike(sample: dict[str, Any]) -> bool:
    """Whether a response is written as its answer is: the same kinds of characters."""

    def kinds(text: str) -> set[str]:
        return {"digit" if c.isdigit() else "letter" if c.isalpha() else c for c in text.strip()}

    response, answer = sample["response"], sample["answer"]
    short = len(response.strip()) <= 2 * len(answer.strip()) + 4
    return bool(response.strip()) and short and kinds(response) <= kinds(answer)


@cause(names.RIGHT, least=3)
def right_texts_are_judged_wrong(run: Record) -> Finding | None:
    """Responses that are exactly the answer count as wrong."""
    same = [s for s in texts(run) if s["response"].strip() == s["answer"].strip() != ""]
    scores = [s["score"] for s in same if isinstance(s.get("score"), int | float)]
    low, high = min(run.series("score/min"), default=0.0), max(run.series("score/max"), default=1.0)
    every = high < low + 1e-6 and low > 0  # all responses are paid
    if len(scores) < 4 or every or fmean(s <= low + 1e-9 for s in scores) < 0.9:
        return None
    known = late(run, names.RIGHT, 0.0) > 0.02  # the task itself judges them right
    key = "" if known else reads(run, ("task.response_pattern", "task.answer_pattern"))
    which = key or ("the reward" if known else "the task's check of a response, or the reward")
    example = same[0]
    return Finding(
        "problem",
        f"Correct responses are judged wrong: {len(same)} samples are exactly the answer (for "
        f"example {example['response']!r} to {example['prompt'][-40:]!r}), and "
        f"{sum(s <= low + 1e-9 for s in scores)} of them get the lowest score. The cause is "
        f"{which}{'' if not key else ', which extracts another part of the text'}.",
        f"Fix {key.split('=')[0]}: it must match the whole answer in a response."
        if key
        else "Call the check with one of these responses and its answer.",
        {"same": len(same), "wrong": sum(s <= low + 1e-9 for s in scores)},
    )


@cause(names.RIGHT, least=3)
def answers_belong_to_other_prompts(run: Record) -> Finding | None:
    """Responses have the form of answers, but none is ever correct."""
    most = max((e.get(names.ACCURACY, 0.0) for e in run.evaluations), default=0.0)
    if not right_or_wrong(run) or fmean(run.series(names.RIGHT)) > 0.03 or most > 0.05:
        return None
    found = [s for s in texts(run) if not s.get("truncated")]
    if (
        len(found) < 12
        or fmean(map(_alike, found)) < 0.8
        or fmean(len(s["answer"]) for s in found) < 1.5
        or len({s["response"] for s in found}) < 6
    ):
        return None  # fmt: skip
    inside = fmean(s["answer"].strip() in s["prompt"] for s in found)
    copied = (
        f" {inside:.0%} of the answers are part of their prompt, as in "
        f"{found[0]['prompt'][-40:]!r} -> {found[0]['answer']!r}: is it the wrong column?"
        if inside > 0.6
        else f" An example: {found[0]['prompt'][-40:]!r} -> {found[0]['answer']!r}, answered "
        f"{found[0]['response']!r}."
    )
    key = reads(run)
    where = f" Suspects: {key}." if key else ""
    return Finding(
        "problem",
        "The model answers in the right format but is never correct, in training "
        f"({fmean(run.series(names.RIGHT)):.1%}) or held out ({most:.1%}): prompts and answers do "
        f"not belong together, or responses are parsed wrongly.{copied}{where} Otherwise the task "
        "is too hard for this model.",
        "Read samples.jsonl: does the prompt contain the whole question, and is the answer its "
        "answer? If both are correct, use easier prompts or a warm start (`rlzoo sft`).",
        {"right": fmean(run.series(names.RIGHT)), "answer_in_prompt": inside},
    )


@aside(names.REWARD, names.RIGHT, names.RIGHT_CORR, least=3)
def reward_pays_otherwise(run: Record) -> Finding | None:
    """A binary reward disagrees with the task: it rewards wrong answers, or misses correct ones."""
    right, paid = fmean(run.series(names.RIGHT)), fmean(run.series("score/mean") or [math.nan])
    corr = fmean(run.series(names.RIGHT_CORR))
    high, low = max(run.series("score/max"), default=1.0), min(run.series("score/min"), default=0.0)
    binary = says_yes_or_no(run) and low >= 0 and high <= 1
    if not binary or not 0.1 < corr < 0.93 or -0.1 <= right - paid <= 0.08:
        return None
    lenient = paid > right
    what = "accepts wrong" if lenient else "misses correct"
    return Finding(
        "warning",
        f"The reward {what} answers: {right:.0%} of the training responses are correct, the mean "
        f"score is {paid:.2f}, and the correlation between correctness and score is {corr:.2f}. "
        f"The reward is binary and disagrees with the task's own check.{follows(run)}",
        "Read samples.jsonl: which incorrect responses get a reward?"
        if lenient
        else "Read samples.jsonl: which correct responses score 0? Typically the verifier times "
        "out, expects another format, or compares too strictly.",
        {"right": right, "paid": paid, "correlation": corr},
    )


def _number(text: str) -> float | None:
    try:
        return float(text.strip())
    except ValueError:
        return None


@aside(names.RIGHT)
def other_numbers_count_as_correct(run: Record) -> Finding | None:
    """Responses whose number differs from the answer count as correct."""
    pairs = [(_number(s["response"]), _number(s["answer"]), s) for s in texts(run)]
    known = [(a, b, s) for a, b, s in pairs if a is not None and b is not None and a != b]
    high, low = max(run.series("score/max"), default=1.0), min(run.series("score/min"), default=0.0)
    paid = [s for a, b, s in known if abs(a - b) > 1e-6 * abs(b) and s.get("score") == high > low]
    right = fmean(run.series(names.RIGHT))
    if len(paid) < 4 or len(paid) < 0.2 * len(known) or right < 1 - len(known) / len(pairs) + 0.1:
        return None
    return Finding(
        "problem",
        f"Wrong numbers count as correct: {len(paid)} of {len(known)} samples whose number "
        f"differs from the answer have the highest score (for example {paid[0]['response']!r} for "
        f"{paid[0]['answer']!r}), and the task counts {right:.0%} of the responses as correct. "
        "The accuracy reported for this run is too high.",
        "Check how numbers are compared: a tolerance (task.tolerance), or only a part of the text?",
        {"paid": len(paid), "wrong": len(known), "right": right},
    )


@aside(names.REWARD)
def solved_before_training(run: Record) -> Finding | None:
    """Nearly every held-out answer is correct before the first step."""
    first = run.evaluations[0] if run.evaluations else {}
    accuracy = first.get(names.ACCURACY, 0.0)
    if first.get("step") != 0 or accuracy < 0.98:
        return None
    return Finding(
        "warning",
        f"Held-out accuracy is {accuracy:.3f} before any training: the task is already solved, or "
        "its check accepts everything.",
        "Read samples.jsonl: are these responses correct? If they are, use harder prompts.",
        {"accuracy": accuracy},
    )


@aside(names.REWARD)
def held_out_prompts_are_trained_on(run: Record) -> Finding | None:
    """Some evaluation prompts are also training prompts."""
    if not own_data(run):  # some tasks of the zoo have few prompts on purpose
        return None
    held = set(map(int, run.by_prompt.get("prompt", ())))
    pairs = {
        (s["prompt"], repr(s["answer"])) for s in run.samples if {"prompt", "answer"} <= s.keys()
    }
    seen = {crc32(repr(pair).encode()) for pair in pairs}
    if len(held) < 3 or len(seen) < 8 or len(held & seen) < 0.5 * min(len(held), len(seen)):
        return None
    return Finding(
        "warning",
        f"{len(held & seen)} of {len(seen)} training prompts in samples.jsonl are also held "
        "out, so held-out accuracy does not show whether the policy generalizes.",
        "Split the data so that no prompt is in both splits (task.test_path, task.test_fraction).",
        {"both": len(held & seen), "training": len(seen), "held_out": len(held)},
    )


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
        f"prompt has {length:.1f} tokens, so most prompts have lost their {side}, including "
        f"held-out ones. The reward went from {course(run)}.",
        "Raise task.max_prompt, or drop longer prompts (task.too_long=drop).",
        {"limit": limit, "mean": length},
    )


@cause(names.LENGTH, names.TRUNCATED)
def responses_are_empty(run: Record) -> Finding | None:
    """Every response of the first step is one token that ends it."""
    length, cut = run.series(names.LENGTH)[0], run.series(names.TRUNCATED)[0]
    if length > 1 + 1e-6 or cut > 0.01 or run.has("turns/mean"):
        return None
    return Finding(
        "warning" if learning(run) else "problem",
        f"All responses of step {run.steps_of(names.LENGTH)[0]} have length {length:.0f}: the "
        "end-of-sequence token, so every text is empty before any training. Either prompts end "
        "with an end token that the tokenizer or the chat template appends, or the model has not "
        f"learned to answer such prompts. The reward went from {course(run)}.",
        "Look at the ids of a prompt (`rlzoo check model=NAME`); prompts must not end with the "
        "end-of-sequence token. A chat model may need model.chat=always.",
        {"length": length},
    )


@aside(names.TRUNCATED, least=3)
def training_is_cut_shorter(run: Record) -> Finding | None:
    """Responses are longer in evaluations than the training limit allows."""
    limit, longer = run.key("rollout.max_new_tokens"), run.key("eval.max_new_tokens")
    cut = fmean(run.series(names.TRUNCATED))
    if not limit or not longer or longer <= limit or cut < 0.05:
        return None
    return Finding(
        "warning",
        f"rollout.max_new_tokens={limit} cuts {cut:.0%} of the training responses short, while "
        f"evaluations allow {longer} tokens. Answers longer than {limit} tokens never get a "
        f"reward, so the policy learns to avoid them. The reward went from {course(run)}.",
        f"Set rollout.max_new_tokens={longer}.",
        {"limit": limit, "evaluation": longer, "truncated": cut},
    )
