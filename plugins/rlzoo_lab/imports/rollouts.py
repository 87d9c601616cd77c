"""Prompts and responses that trainers save, and the metrics computed from them."""

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from statistics import StatisticsError, correlation, fmean, pstdev
from typing import Any

from rlzoo_lab.data.strict import damaged, json_lines
from rlzoo_lab.imports.found import Found, Sample, Values, grouped
from rlzoo_lab.imports.tabular import number as number_of
from rlzoo_lab.imports.tabular import parquet_rows

TRL_COLUMNS = ("step", "prompt", "completion", "advantage")
LONG = 100_000  # characters of a text that are kept


def parquet_samples(path: Path, rewards: Sequence[str], weights: Sequence[float]) -> list[Sample]:
    """TRL's completions_*.parquet. rewards: names of its reward functions, weights: theirs; a
    sample's score is their weighted sum, as TRL's reward; functions that abstain (NaN) are left
    out."""
    rows = parquet_rows(path)
    if lacks := [name for name in TRL_COLUMNS[:3] if rows and name not in rows[0]]:
        raise damaged(path, None, f"TRL's columns of completions; {lacks[0]!r} is missing")
    out = []
    for number, row in enumerate(rows, 1):
        if not isinstance(row["step"], int):
            raise damaged(path, number, "a whole number as 'step'")
        terms = {k: s for k in rewards if isinstance(s := row.get(k), int | float) and s == s}
        weighted = [terms[k] * w for k, w in zip(rewards, weights, strict=True) if k in terms]
        advantage = row.get("advantage")
        out.append(Sample(row["step"], _text(row["prompt"]), _text(row["completion"]),
                          sum(weighted) if weighted else None,
                          advantage if isinstance(advantage, int | float) else None,
                          group=_text(row["prompt"]), terms=terms))  # fmt: skip
    return out


def verl_samples(path: Path, _: Found) -> Iterator[Sample]:
    """verl's rollout dump, one JSON object per line: input, output, gts, score, step."""
    for number, line in json_lines(path):
        step, score = line.get("step"), line.get("score")
        if not {"input", "output"} <= line.keys() or type(step) is not int:
            raise damaged(path, number, "'input', 'output' and a whole number as 'step'")
        if score is not None and (score := number_of(score)) is None:
            raise damaged(path, number, "a number as 'score'")
        answer = line.get("gts")
        yield Sample(step, _text(line["input"]), _text(line["output"]), score, answer=answer,
                     episode=line.get("traj_uid", line.get("request_id")))  # fmt: skip


def slime_samples(path: Path, _: Found) -> Iterator[Sample]:
    """Files of --save-debug-rollout-data of slime and miles, which count from 0."""
    from pickle import UnpicklingError

    import torch

    expected = "a rollout that slime or miles saved, which torch.load reads with weights_only"
    try:
        saved = torch.load(path, map_location="cpu", weights_only=True)
    except (OSError, RuntimeError, UnpicklingError, EOFError, LookupError, TypeError, ValueError):
        raise damaged(path, None, expected) from None
    rows = saved.get("samples") if isinstance(saved, dict) else None
    whole = isinstance(rows, list) and all(isinstance(row, dict) for row in rows)
    if not whole or type(saved.get("rollout_id")) is not int:
        raise damaged(path, None, expected)
    for row in rows or ():
        score, label = row.get("reward"), row.get("label")
        yield Sample(saved["rollout_id"] + 1, _text(row.get("prompt")), _text(row.get("response")),
                     score if type(score) in (int, float) else None,
                     answer=label if isinstance(label, str) else None,
                     group=row.get("group_index"),
                     truncated=row.get("status") == "truncated")  # fmt: skip


def prime_samples(path: Path, _: Found) -> Iterator[Sample]:
    """prime-rl's traces of a step, an episode a line: the last branch of each trained agent."""
    for number, line in json_lines(path):
        try:
            step, group = int(path.parents[2].name.removeprefix("step_")), line.get("group") or {}
            for trace in (t for t in line["traces"] if t["agent"].get("trainable", True)):
                yield _prime_sample(step, _branch(trace["nodes"]), trace, group.get("id"))
        except (LookupError, TypeError, ValueError, AttributeError):
            raise damaged(path, number, "an episode of verifiers, in the folder of its step") from (
                None)  # fmt: skip


def _branch(nodes: list[Any]) -> list[Any]:
    """The last message and those before it."""
    found = nodes[-1:]
    while found[0].get("parent") is not None and len(found) < len(nodes):
        found.insert(0, nodes[found[0]["parent"]])
    return found


def _prime_sample(step: int, nodes: list[Any], trace: Mapping[str, Any], group: Any) -> Sample:
    first = next((i for i, node in enumerate(nodes) if node.get("sampled")), len(nodes))
    said = [node["message"] for node in nodes[first:]]
    credit = [x for node in nodes for x in node.get("advantages") or ()]
    terms = {k: r["score"] * r.get("weight", 1.0) for k, r in trace["rewards"].items() if r}
    return Sample(step, _text([node["message"] for node in nodes[:first]]),
                  _text(said[0]["content"] if len(said) == 1 else said), sum(terms.values()),
                  fmean(credit) if credit else None, group=group, terms=terms)  # fmt: skip


def _text(value: Any) -> str:
    """A prompt or response: a text, or the contents of a conversation's messages."""
    if isinstance(value, list) and all(isinstance(m, Mapping) for m in value):
        value = "\n".join(f"{m.get('role', '')}: {m.get('content', '')}" for m in value)
    return str(value)[:LONG]


def sample_metrics(samples: Sequence[Sample], per_prompt: int | None) -> Values:
    """Metrics of one step's responses with rlzoo's names; a group is the responses to a prompt.

    per_prompt: the number of responses per prompt, for `prompts/distinct`.
    """
    groups = grouped(samples, lambda s: s.prompt)
    texts = grouped(samples, lambda s: (s.prompt, s.response))
    parts = [samples[i : i + (per_prompt or 1)] for i in range(0, len(samples), per_prompt or 1)]
    if any(len({s.prompt for s in part}) > 1 or len(part) != per_prompt for part in parts):
        parts = list(groups.values())  # not in the order in which groups were sampled
    out: Values = {"response/distinct": len({s.response for s in samples}) / len(samples)}
    if per_prompt and len(samples) % per_prompt == 0:
        out["prompts/distinct"] = min(1.0, len(groups) * per_prompt / len(samples))
    if len(groups) < len(samples):
        out["group/distinct"] = fmean(len({s.response for s in g}) / len(g) for g in parts)
    if given := grouped((s for s in samples if s.group not in (None, s.prompt)), lambda s: s.group):
        out["group/unequal_prompts"] = fmean(len({s.prompt for s in g}) > 1 for g in given.values())
    scores = [s.score for s in samples if s.score is not None]
    if len(scores) < len(samples) or not all(map(math.isfinite, scores)):
        return out
    out |= {"reward/mean": fmean(scores), "score/mean": fmean(scores), "score/min": min(scores),
            "score/max": max(scores)}  # fmt: skip
    if len(scores) > 1:
        out["score/std"] = pstdev(scores)
    if len(groups) < len(samples):
        out["group/no_signal"] = fmean(len({s.score for s in g}) == 1 for g in parts)
        for name in samples[0].terms if len(samples[0].terms) > 1 else ():
            flat = (len({s.terms.get(name) for s in g}) == 1 for g in parts)
            out[f"group/no_signal/{name}"] = fmean(flat)
    episodes = grouped(samples, lambda s: s.episode).values()
    if 1 < len(episodes) < len(samples):
        out["reward/per_episode"] = fmean(fmean(s.score or 0.0 for s in e) for e in episodes)
    if left := len(samples) - len(texts):
        means = {text: fmean(s.score or 0.0 for s in same) for text, same in texts.items()}
        gaps = ((s.score or 0.0) - means[s.prompt, s.response] for s in samples)
        out["score/noise"] = math.sqrt(sum(gap * gap for gap in gaps) / left)
    advantages = [s.advantage for s in samples if s.advantage is not None]
    if len(advantages) == len(samples):
        with suppress(StatisticsError):  # one of them is constant
            out["raw_advantages/score_corr"] = correlation(scores, advantages)
    return out
