"""Checks of aggregations, columns, loggers and rewards, in addition to those of every function."""

import math
import tempfile
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean

import torch
from torch import Tensor

from rlzoo.errors import RlzooError
from rlzoo.plugin.call import has_shape
from rlzoo.plugin.columns import RESOURCES
from rlzoo.plugin.component import Example
from rlzoo_lab.kit.checks import made_up
from rlzoo_lab.kit.checks.subject import NotApplicable, Subject
from rlzoo_lab.kit.checks.tasks import encoded


def weights_are_weights(s: Subject) -> None:
    """No weight is negative, and if there are actions, some weight is positive."""
    for _ in s.variants():
        weights = s.call(s.batch())["weights"]
        assert bool((weights >= 0).all()), "gives a negative weight"
        assert bool((weights > 0).any()), "gives every token a weight of 0"


def example_is_like_the_column(s: Subject) -> None:
    """Its example has the declared shape, is finite, and depends only on the generator."""
    if s.component.example is None:
        raise NotApplicable("has no example; the checks use noise of its shape")
    mask = s.batch()["response_mask"]
    rows, steps = mask.shape
    draws = (torch.Generator().manual_seed(0) for _ in range(2))
    made, again = (made_up.exotic(s.component, draw, mask) for draw in draws)
    if s.component.shape == "list":
        assert len(made) == rows, f"its example has {len(made)} entries, not B = {rows}"
        return
    assert isinstance(made, Tensor), f"its example is {type(made).__name__}, not a tensor"
    right = has_shape(made, s.component.shape, rows, steps)
    assert right, f"its example has shape {tuple(made.shape)}, but {s.component.shape} is declared"
    assert torch.equal(made, again), "its example differs between calls; use the generator"
    assert bool(torch.isfinite(made).all()), "its example is not finite"


def takes_what_a_run_gives(s: Subject) -> None:
    """It can be made in a run folder, accepts steps, evaluations and NaN, and closes."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            logger = s.component({"path": Path(folder)})
        except (RlzooError, ImportError) as error:
            raise NotApplicable(f"not available here: {error}") from None
        for method in ("log", "close"):
            assert callable(getattr(logger, method, None)), f"has no method {method!r}"
        metrics = {"step": 1, "reward/mean": 0.5, "perf/tokens": 640}
        before = dict(metrics)
        logger.log(metrics)
        assert metrics == before, "changes the metrics that it receives"
        logger.log({"step": 2, "reward/mean": math.nan, "perf/tokens": 1280})
        logger.log({"step": 2, "eval/accuracy": 0.25})
        logger.close()


Scored = tuple[float, float, str, str, str]

FORMS = ("{}", "<answer>{}</answer>", "#### {}", "\\boxed{{{}}}")
ANSWERS = ("47", "135", "902", "61", "358", "7204")
WRONG = {  # texts that are not the answer, by how they differ
    "with another last character": lambda a: a[:-1] + str((int(a[-1]) + 4) % 10),
    "with another first character": lambda a: str(int(a[0]) % 9 + 1) + a[1:],
    "that is only its start": lambda a: a[:-1],
    "that is empty": lambda _: "",
    "that continues after it": lambda a: f"{a}3",
    "that only ends with it": lambda a: f"3{a}",
    "that is long": lambda a: "9" * (len(a) + 3),
    "of other rows": lambda a: ANSWERS[ANSWERS.index(a) - 1],
}


def right_beats_wrong(s: Subject) -> None:
    """A response that is the answer scores higher than one that is not, in the same batch; in the
    format, of a few common ones, that the reward pays best."""
    if not {"answers", "responses"} <= {*s.needs}:
        raise NotApplicable("does not compare responses with answers")
    plain, *others = (list(_scored(s, form)) for form in FORMS)
    best = max([plain, *others], key=_gap)
    found = best if _gap(best) > 0 else plain
    if len({score for pair in found for score in pair[:2]}) == 1:
        raise NotApplicable("rewards no answer; it may require another format")
    for right, wrong, answer, text, how in found:
        assert right > wrong, (
            f"for the answer {answer!r}, the response {text!r}, {how}, scores {wrong:g}, and the "
            f"answer itself {right:g}"
        )


def _gap(found: list[Scored]) -> float:
    return fmean(right - wrong for right, wrong, *_ in found)


def _scored(s: Subject, form: str) -> Iterator[Scored]:
    """(score of the answer, of another text, the answer, the text, how it differs)."""
    kinds = list(WRONG)
    for turn in range(len(kinds)):  # each answer next to each kind of wrong text
        how = [kinds[(turn + i) % len(kinds)] for i in range(len(ANSWERS))]
        said = [WRONG[k](a) for a, k in zip(ANSWERS, how, strict=True)]
        rows = [form.format(x) for pair in zip(ANSWERS, said, strict=True) for x in pair]
        examples = [Example("?", a) for a in ANSWERS for _ in range(2)]
        columns = encoded(examples, [([x], True) for x in rows], (), torch.zeros(len(rows)))
        columns |= {"group_ids": torch.arange(len(rows)) // 2}
        if missing := [n for n in s.needs if n not in columns and n not in RESOURCES]:
            raise NotApplicable(f"scores with {', '.join(missing)}, which only a run has")
        scores = s.call(columns)["scores"].reshape(len(rows), -1).sum(1).tolist()
        yield from zip(scores[::2], scores[1::2], ANSWERS, rows[1::2], how, strict=True)
