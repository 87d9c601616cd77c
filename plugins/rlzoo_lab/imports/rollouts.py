"""Prompts and responses that trainers save, and the metrics computed from them."""

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from rlzoo.errors import RlzooError
from rlzoo_lab.imports.found import Sample, Tokens, Values
from rlzoo_lab.strict import damaged, json_lines

TRL_COLUMNS = ("step", "prompt", "completion", "advantage")
LONG = 100_000  # characters of a text that are kept


def parquet_samples(path: Path, rewards: Sequence[str], weights: Sequence[float]) -> list[Sample]:
    """TRL's completions_*.parquet. rewards: names of its reward functions, weights: theirs; a
    sample's score is their weighted sum, as TRL's reward. Raises DataError; RlzooError without
    pyarrow."""
    try:
        from pyarrow import ArrowException, ArrowInvalid
        from pyarrow.parquet import read_table
    except ImportError:
        raise RlzooError(f"{path}: parquet needs pyarrow: pip install 'rlzoo-llm[data]'") from None
    try:
        rows = read_table(path).to_pylist()
    except (ArrowInvalid, ArrowException, OSError, ValueError):
        raise damaged(path, None, "a whole parquet file") from None
    if lacks := [name for name in TRL_COLUMNS[:3] if rows and name not in rows[0]]:
        raise damaged(path, None, f"TRL's columns of completions; {lacks[0]!r} is missing")
    out = []
    for number, row in enumerate(rows, 1):
        if not isinstance(row["step"], int):
            raise damaged(path, number, "a whole number as 'step'")
        scores = [row.get(name) for name in rewards]
        real = [(s, w) for s, w in zip(scores, weights, strict=True) if isinstance(s, int | float)]
        score = sum(s * w for s, w in real) if real else None
        advantage = row.get("advantage")
        out.append(
            Sample(row["step"], _text(row["prompt"]), _text(row["completion"]), score,
                   advantage if isinstance(advantage, int | float) else None)
        )  # fmt: skip
    return out


def verl_samples(path: Path) -> Iterator[Sample]:
    """verl's rollout dump, one JSON object per line: input, output, gts, score, step."""
    for number, line in json_lines(path):
        step, score = line.get("step"), line.get("score")
        if not {"input", "output"} <= line.keys() or type(step) is not int:
            raise damaged(path, number, "'input', 'output' and a whole number as 'step'")
        if score is not None and type(score) not in (int, float):
            raise damaged(path, number, "a number as 'score'")
        answer = line.get("gts")
        yield Sample(step, _text(line["input"]), _text(line["output"]), score, answer=answer)


def prime_tokens(path: Path) -> Iterator[Tokens]:
    """prime-rl's token export: a sequence per line, with lists over its tokens."""
    for number, line in json_lines(path):
        lists = [line.get(k) for k in ("loss_mask", "advantages", "trainer_logprobs",
                                       "inference_logprobs")]  # fmt: skip
        whole = all(isinstance(x, list) and len(x) == len(lists[0] or ()) for x in lists)
        if type(line.get("step")) is not int or not whole:
            raise damaged(path, number, "a step and lists over tokens of one length")
        mask, *columns = lists
        kept = [[x for x, m in zip(column or (), mask or (), strict=True) if m]
                for column in columns]  # fmt: skip
        if any(type(x) not in (int, float) for column in kept for x in column):
            raise damaged(path, number, "a number for each trained token")
        yield Tokens(line["step"], *kept)


def _text(value: Any) -> str:
    """A prompt or response: a text, or the contents of a conversation's messages."""
    if isinstance(value, list) and all(isinstance(m, Mapping) for m in value):
        value = "\n".join(f"{m.get('role', '')}: {m.get('content', '')}" for m in value)
    return str(value)[:LONG]


def sample_metrics(samples: Sequence[Sample], per_prompt: int | None) -> Values:
    """Metrics of one step's responses with rlzoo's names; a group is the responses to a prompt.

    per_prompt: the number of responses per prompt, for `prompts/distinct`.
    """
    groups: dict[str, list[Sample]] = {}
    for sample in samples:
        groups.setdefault(sample.prompt, []).append(sample)
    out: Values = {"response/distinct": len({s.response for s in samples}) / len(samples)}
    if per_prompt and len(samples) % per_prompt == 0:
        out["prompts/distinct"] = min(1.0, len(groups) * per_prompt / len(samples))
    if len(groups) < len(samples):
        texts = [len({s.response for s in g}) / len(g) for g in groups.values()]
        out["group/distinct"] = fmean(texts)
    scores = [s.score for s in samples if s.score is not None]
    if len(scores) < len(samples) or not all(map(math.isfinite, scores)):
        return out
    out |= {"reward/mean": fmean(scores), "score/mean": fmean(scores), "score/min": min(scores),
            "score/max": max(scores)}  # fmt: skip
    if len(scores) > 1:
        out["score/std"] = stdev(scores)
    if len(groups) < len(samples):
        flat_groups = [len({s.score for s in g}) == 1 for g in groups.values()]
        out["group/no_signal"] = fmean(flat_groups)
    advantages = [s.advantage for s in samples if s.advantage is not None]
    if len(advantages) == len(samples):
        corr = correlation(scores, advantages)
        out |= {} if corr is None else {"raw_advantages/score_corr": corr}
    return out


def token_metrics(rows: Sequence[Tokens]) -> Values:
    """Metrics of one step's exported tokens with rlzoo's names: means over all trained tokens."""
    advantages = [x for row in rows for x in row.advantages]
    gaps = [abs(a - b) for row in rows for a, b in zip(row.trained, row.sampled, strict=True)]
    if not gaps:
        return {}
    lengths = [len(row.trained) for row in rows]
    return {
        "sampler/log_prob_gap": fmean(gaps),
        "advantages/mean": fmean(advantages), "advantages/min": min(advantages),
        "advantages/max": max(advantages), "response_length/mean": fmean(lengths),
        "response_length/min": min(lengths), "response_length/max": max(lengths),
    }  # fmt: skip


def correlation(x: Sequence[float], y: Sequence[float]) -> float | None:
    """Pearson's correlation; None if either is constant."""
    a, b = [v - fmean(x) for v in x], [v - fmean(y) for v in y]
    size = math.sqrt(sum(v * v for v in a) * sum(v * v for v in b))
    return sum(u * v for u, v in zip(a, b, strict=True)) / size if size > 0 else None
