"""Compares scores of runs from any trainer, without run folders."""

from argparse import Namespace
from collections.abc import Iterable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

from rlzoo.cli.verb import work
from rlzoo_lab.api.document import Document
from rlzoo_lab.api.verbs import PathOrRun
from rlzoo_lab.compare.command import result_of
from rlzoo_lab.compare.comparison import compare_rows
from rlzoo_lab.data.comparable import Gathered
from rlzoo_lab.data.scores import rows_of_arrays


def compare_scores(
    scores: Mapping[str, Iterable[Any]],
    *,
    paired: bool = True,
    steps: Sequence[int] | None = None,
    reference: str | None = None,
    threshold: float | None = None,
    details: bool = False,
    html: PathOrRun | None = None,
    plots: PathOrRun | None = None,
) -> Document:
    """Which of several methods is better, by their scores; like `rlzoo.compare`.

    scores: name -> scores over seeds, (S,), or learning curves, (S, T), of numbers or an array.
        Higher is better. Only the last score of a curve is compared.
    paired: whether the i-th scores of all names have the same seed. False: no two share a seed.
    steps: (T,), those of the learning curves; default 0, 1, ...
    reference, threshold, details, html, plots: as in `rlzoo.compare`.

    Raises UsageError if scores are not finite numbers, or if names have different numbers of paired
    scores.

    Examples:
        >>> found = rlzoo.compare_scores({"a": [0.5, 0.6, 0.7, 0.6], "b": [0.4, 0.4, 0.5, 0.4]})
        >>> round(found["pairs"][0]["difference"], 3)
        0.175
    """
    rows = rows_of_arrays(scores, paired, steps)
    runs = [run for row in rows for run in row.runs.values()]
    c = compare_rows(rows, Gathered(runs), reference=reference, threshold=threshold)
    options = Namespace(by=(), csv=False, latex=False, markdown=False, details=details,
                        html=html, plots=plots)  # fmt: skip
    return Document(work(SimpleNamespace(run=lambda given: result_of(c, given)), options))
