"""What the scores in samples.jsonl follow: which feature of a response explains them best."""

from collections import defaultdict
from collections.abc import Hashable, Sequence
from statistics import fmean
from typing import Any

from rlzoo.runs.disk import is_number
from rlzoo_lab.data.record import Record

FEWEST = 24  # samples
RIGHT = "whether it is the answer"


def texts(run: Record) -> list[dict[str, Any]]:
    """Samples that have a prompt, a response and an answer as text."""
    keys = ("prompt", "response", "answer")
    return [s for s in run.samples if all(isinstance(s.get(key), str) for key in keys)]


def features(sample: dict[str, Any]) -> dict[str, Hashable]:
    """Properties that a reward may follow by mistake, and whether the response is the answer."""
    said, answer = sample["response"].strip(), sample["answer"].strip()
    return {
        RIGHT: said == answer,
        "the length of the response": min(len(said), 12),
        "its first character": said[:1],
        "its last character": said[-1:],
        "whether it contains the answer": answer in said,
        "whether it is the start of the answer": answer.startswith(said),
        "whether its first character is the answer's": said[:1] == answer[:1],
        "whether its last character is the answer's": said[-1:] == answer[-1:],
        "the length of the answer": len(answer),
        "the prompt": sample["prompt"],
        "the step": sample.get("step"),
    }


def share(values: Sequence[Hashable], scores: Sequence[float]) -> float:
    """The share of the scores' variance between groups of equal values, less what as many random
    groups would explain (epsilon squared; Kelley 1935)."""
    groups: dict[Hashable, list[float]] = defaultdict(list)
    for value, score in zip(values, scores, strict=True):
        groups[value].append(score)
    middle, rest = fmean(scores), len(scores) - len(groups)
    total = sum((x - middle) ** 2 for x in scores) / (len(scores) - 1)
    if rest < len(scores) / 2 or total < 1e-12:
        return 0.0
    within = sum((x - fmean(g)) ** 2 for g in groups.values() for x in g) / rest
    return max(0.0, 1 - within / total)


def follows(run: Record) -> str:
    """` The scores follow X, which explains 90% ...`; empty where correctness explains as much."""
    known = [s for s in texts(run) if is_number(s.get("score"))]
    if len(known) < FEWEST:
        return ""
    scores = [float(s["score"]) for s in known]
    rows = [features(s) for s in known]
    shares = {name: share([row[name] for row in rows], scores) for name in rows[0]}
    best = max(shares, key=lambda name: shares[name])
    if shares[best] < 0.4 or shares[best] < shares[RIGHT] + 0.15:
        return ""
    return (
        f" The scores in samples.jsonl follow {best}: it explains {shares[best]:.0%} of their "
        f"variance, and {RIGHT} {shares[RIGHT]:.0%}."
    )
