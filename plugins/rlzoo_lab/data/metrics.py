"""What each metric of metrics.jsonl means: the table metrics.yaml, for tools and for the docs."""

from functools import cache
from importlib.resources import files
from typing import NamedTuple

from rlzoo.recipe.files import parse_yaml


class Metric(NamedTuple):
    """A key of a line, or a pattern of keys: `*` is each of mean, std, min, max; NAME a plugin's.

    maker: who writes it; requires: the runs and steps that have it, empty for all; verl: whether
    verl calls the same number so.
    """

    name: str
    maker: str
    meaning: str
    unit: str = ""
    requires: str = ""
    verl: bool = False


@cache
def metrics() -> list[Metric]:
    """Every metric, in the order of the table."""
    text = files("rlzoo_lab.data").joinpath("metrics.yaml").read_text(encoding="utf-8")
    makers = parse_yaml(text)
    return [
        Metric(n, maker, **about) for maker, part in makers.items() for n, about in part.items()
    ]
