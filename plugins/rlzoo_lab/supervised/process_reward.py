"""`rlzoo model reward --per-step`: a process reward model from solutions with judged steps.

It is a transformers token classifier with two labels, as TRL's PRMTrainer makes one;
`reward_models` encodes and scores for it. No torch at module level.
"""

import argparse
from collections.abc import Iterator, Sequence
from typing import Any

from rlzoo_lab.supervised import fit, options
from rlzoo_lab.supervised.fit import TokenIds
from rlzoo_lab.supervised.pairs import Solution, read_solutions


def learner(arguments: argparse.Namespace, start: fit.Start) -> fit.Learner:
    """A process reward model: cross-entropy at the last token of each step.
    Source: Uesato et al. 2022, arXiv:2211.14275; Lightman et al. 2023, arXiv:2305.20050.
    """
    import torch
    from transformers import set_seed

    from rlzoo.mdp.batch import right_pad
    from rlzoo_lab.supervised.reward_models import TOKENS, Steps, encode_steps, make, score_steps

    set_seed(arguments.seed)  # of the new head
    model, tokenizer = make(start.folder, TOKENS, options.chat_args(arguments))
    for part in model.modules():
        if isinstance(part, torch.nn.Dropout):
            part.p = 0.0  # a causal LM has no dropout; the new head would

    def encoded(solution: Solution) -> TokenIds:
        row = encode_steps(tokenizer, solution.prompt, solution.steps, arguments.separator)
        right = dict(zip(row.ends, solution.labels, strict=True))
        return row.ids, [int(right[i]) if i in right else fit.IGNORED for i in range(len(row.ids))]

    def collate(items: list[TokenIds]) -> dict[str, Any]:
        ids, mask = right_pad([ids for ids, _ in items], 0)
        labels, _ = right_pad([labels for _, labels in items], fit.IGNORED)
        return {"input_ids": ids, "attention_mask": mask, "labels": labels}

    def loss(model: Any, given: dict[str, Any]) -> Any:
        read = {name: x for name, x in given.items() if name != "labels"}
        logits = model(**read).logits.float().flatten(0, 1)
        return torch.nn.functional.cross_entropy(logits, given["labels"].flatten())

    def report(_: fit.Rows, tests: fit.Rows) -> dict[str, Any]:
        ends = [[i for i, x in enumerate(labels) if x != fit.IGNORED] for _, labels in tests]
        held = [Steps(ids, where) for (ids, _), where in zip(tests, ends, strict=True)]
        found = score_steps(model, held, arguments.batch)
        truth = [[labels[i] for i in at] for (_, labels), at in zip(tests, ends, strict=True)]
        every = [*start.training, *start.held_out]
        return {"separator": arguments.separator,
                "steps_of_several": of_several(every, arguments.separator),
                "held_out": judged(found, truth)}  # fmt: skip

    return fit.Learner(model, tokenizer, encoded, lambda ids: len(ids[0]), collate, loss, report)


def of_several(solutions: Sequence[Solution], separator: str) -> int:
    """The number of steps that contain the separator; a run, which sees only text, splits each of
    them."""
    pieces = [step.split(separator) for solution in solutions for step in solution.steps]
    return sum(sum(bool(piece.strip()) for piece in some) > 1 for some in pieces)


def judged(found: Sequence[Sequence[float]], truth: Sequence[Sequence[int]]) -> dict[str, Any]:
    """How often a step is judged as labeled (correct if P > 0.5), and how often the first wrong
    step of a solution, or its absence, is found."""
    pairs = [(p > 0.5, bool(x)) for row, labels in zip(found, truth, strict=True)
             for p, x in zip(row, labels, strict=True)]  # fmt: skip
    of_right = [said for said, x in pairs if x]
    of_wrong = [not said for said, x in pairs if not x]
    firsts = [_first([p <= 0.5 for p in row]) == _first([not x for x in labels])
              for row, labels in zip(found, truth, strict=True)]  # fmt: skip
    hits = sum(said == x for said, x in pairs)
    return {
        "steps": len(pairs),
        "share_right": len(of_right) / len(pairs),
        **fit.accuracy(hits, len(pairs)),
        "accuracy_of_right": sum(of_right) / len(of_right) if of_right else None,
        "accuracy_of_wrong": sum(of_wrong) / len(of_wrong) if of_wrong else None,
        "first_error_found": sum(firsts) / len(firsts),
    }


def _first(wrong: Sequence[bool]) -> int | None:
    return next((i for i, x in enumerate(wrong) if x), None)


def _shown(report: dict[str, Any]) -> Iterator[str]:
    held = report["held_out"]
    yield (
        f"{fit.accuracy_text(held, 'step ')} of {held['steps']} steps, {held['share_right']:.0%} "
        "of which are correct"
    )
    yield from fit.no_better(report, max(held["share_right"], 1 - held["share_right"]))
    each = [
        f"{name} steps {held[key]:.3f}"
        for name, key in (("right", "accuracy_of_right"), ("wrong", "accuracy_of_wrong"))
        if held[key] is not None
    ]
    if several := report.get("steps_of_several"):
        what = f"steps contain the separator {report['separator']!r}"
        yield f"{several} {what}; a run splits each of them into several steps"
    yield ", ".join(
        [*each, f"first wrong step, or its absence, identified in {held['first_error_found']:.1%}"]
    )


KIND = fit.Kind("process reward", "solution", read_solutions, learner, _shown)
