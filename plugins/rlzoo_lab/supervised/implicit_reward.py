"""`rlzoo model reward --implicit`: a causal LM whose log-ratio to its initial weights is a reward
for each token, trained on responses that are labeled only as a whole.

The loss reads a prompt and a response as `rlzoo model sft` does. No torch at module level.
"""

import argparse
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from typing import Any

from rlzoo_lab.supervised import fit, sft
from rlzoo_lab.supervised.fit import TokenIds
from rlzoo_lab.supervised.pairs import Verdict, read_verdicts

Item = tuple[list[int], list[int], bool, float]  # prompt, response, right, its log pi_ref


def learner(arguments: argparse.Namespace, start: fit.Start) -> fit.Learner:
    """An implicit reward model: cross-entropy of sigmoid(r) against right and wrong, where
    r = beta sum_t log(pi_phi / pi_ref) over the response and pi_ref is the model as it was.
    Source: Yuan et al. 2024, arXiv:2412.01981 (its cross-entropy form); Cui et al. 2025 (PRIME),
    arXiv:2502.01456.
    """
    import torch

    model, tokenizer, reader = sft.causal(arguments, start)

    def encoded(row: Verdict) -> TokenIds:  # the verdict travels behind the response
        prompt, response = sft.encode(reader, row.prompt, row.response)
        return prompt, [*response, int(row.right)]

    def with_reference(items: Sequence[TokenIds]) -> list[Item]:
        rows: list[Item] = [(p, r[:-1], bool(r[-1]), 0.0) for p, r in items]
        sums = [x for part in parts(rows, arguments.batch)
                for x in log_probs(model, collate(part)).tolist()]  # fmt: skip
        return [(*row[:3], x) for row, x in zip(rows, sums, strict=True)]

    def collate(items: list[Item]) -> dict[str, Any]:
        batch = sft.batch_of([item[:2] for item in items], 0)
        more = {"right": [float(x[2]) for x in items], "reference": [x[3] for x in items]}
        found = {**batch, **{name: torch.tensor(x) for name, x in more.items()}}
        return {name: x.to(start.device) for name, x in found.items()}

    def rewards(model: Any, given: dict[str, Any]) -> Any:
        return arguments.beta * (log_probs(model, given) - given["reference"])

    def loss(model: Any, given: dict[str, Any]) -> Any:
        r = rewards(model, given)
        return torch.nn.functional.binary_cross_entropy_with_logits(r, given["right"])

    def report(_: fit.Rows, held: fit.Rows) -> dict[str, Any]:
        scores = [x for part in parts(held, arguments.batch)
                  for x in rewards(model, collate(part)).tolist()]  # fmt: skip
        return {"beta": arguments.beta, "held_out": judged(scores, [x[2] for x in held])}

    return fit.Learner(model, tokenizer, encoded, lambda ids: sum(map(len, ids)) - 1, collate, loss,
                       report, lambda *sides: tuple(map(with_reference, sides)))  # fmt: skip


def parts(items: Sequence[Any], size: int) -> list[list[Any]]:
    return [list(items[i : i + size]) for i in range(0, len(items), size)]


def log_probs(model: Any, given: dict[str, Any]) -> Any:
    """log pi(response | prompt), (B,), of a batch as `sft.batch_of` makes it."""
    logits = model(input_ids=given["input_ids"], attention_mask=given["attention_mask"]).logits
    labels = given["labels"][:, 1:]
    chosen = logits[:, :-1].float().log_softmax(-1).gather(-1, labels.clamp(min=0)[..., None])
    return (chosen[..., 0] * (labels != fit.IGNORED)).sum(1)


def judged(scores: Sequence[float], right: Sequence[bool]) -> dict[str, Any]:
    """How often the sign of r is correct, and how often a correct response scores above a wrong
    one."""
    hits = sum((score > 0) == x for score, x in zip(scores, right, strict=True))
    good = [s for s, x in zip(scores, right, strict=True) if x]
    bad = sorted(s for s, x in zip(scores, right, strict=True) if not x)
    above = sum(bisect_left(bad, s) + bisect_right(bad, s) for s in good) / 2  # ties are half
    return {
        "share_right": len(good) / len(right),
        **fit.accuracy(hits, len(right)),
        "above": above / (len(good) * len(bad)) if good and bad else None,
    }


def _shown(report: dict[str, Any]) -> Iterator[str]:
    held = report["held_out"]
    yield f"{fit.accuracy_text(held)}, {held['share_right']:.0%} of the responses are correct"
    yield from fit.no_better(report, max(held["share_right"], 1 - held["share_right"]))
    if held["above"] is not None:
        yield (
            f"a correct response scores higher than a wrong one in {held['above']:.1%} of all pairs"
        )


KIND = fit.Kind("implicit reward", "response", read_verdicts, learner, _shown)
