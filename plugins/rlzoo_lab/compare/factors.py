"""A comparison by the keys in which its rows differ: a table of two keys, and each key's effect."""

import itertools
from dataclasses import dataclass
from statistics import fmean

from rlzoo.errors import UsageError, nearest
from rlzoo_lab import stats
from rlzoo_lab.compare.comparison import Comparison
from rlzoo_lab.data.comparable import ComparedRow, as_typed, label


@dataclass
class TwoWay:
    """A table with the values of `key` as columns and the rows' other keys as rows; None: no such
    row."""

    key: str
    columns: list[str]
    rows: list[str]
    cells: dict[tuple[str, str], ComparedRow]


def two_way(c: Comparison, key: str) -> TwoWay:
    """Raises UsageError if no row has the key."""
    keys = list(dict.fromkeys(k for row in c.rows for k in row.values))
    hits = [k for k in keys if k in (key, f"{key}.name")]
    hits = hits or [k for k in keys if k.rpartition(".")[2] == key]
    if len(hits) != 1:
        raise UsageError(
            f"--by: the rows do not differ in {key!r}{nearest(key, keys)} (they differ in: "
            f"{', '.join(keys) or 'nothing'})"
        )
    cells = {}
    for row in c.rows:
        rest = dict(row.values)
        column = as_typed(rest.pop(hits[0])) if hits[0] in rest else "-"
        cells[label(rest) or "all", column] = row
    rows, columns = (list(dict.fromkeys(names)) for names in zip(*cells, strict=True))
    return TwoWay(hits[0], columns, rows, cells)


@dataclass(frozen=True)
class Effect:
    """The value `a` of a key minus `b`, averaged in each seed over the `rows` of the other keys."""

    key: str
    a: str
    b: str
    rows: int
    contrast: stats.Contrast


def main_effects(c: Comparison) -> list[Effect]:
    """For rows that are every combination of two keys or more, on the same seeds; else none. The
    tests of a key are those of `stats.block`: they hold for all pairs of its values together."""
    keys = list(dict.fromkeys(k for row in c.rows for k in row.values))
    levels = {key: list(dict.fromkeys(row.values.get(key) for row in c.rows)) for key in keys}
    grid = {tuple(row.values.get(key) for key in keys): row for row in c.rows}
    seeds = c.rows[0].seeds
    whole = len(keys) > 1 and grid.keys() == set(itertools.product(*levels.values()))
    if not whole or len(seeds) < 2 or any(row.seeds != seeds for row in c.rows):
        return []
    effects = []
    for key, values in levels.items():
        halves = [[row for row in c.rows if row.values.get(key) == value] for value in values]
        table = [[fmean(row.runs[s].score for row in half) for half in halves] for s in seeds]
        for (i, j), contrast in stats.block(table).contrasts.items():
            a, b = as_typed(values[j]), as_typed(values[i])
            effects.append(Effect(key, a, b, len(halves[0]), -contrast))
    return effects
