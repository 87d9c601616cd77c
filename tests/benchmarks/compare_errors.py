"""How often the verdict of `rlzoo compare` claims a difference between rows of equal means, where a
skewed row stands beside steadier ones; how often it is withheld; what that costs normal rows.

    python tests/benchmarks/compare_errors.py --tables 10000 --seed 1    # 30 CPU seconds

A cell: % of tables with a wrong claim, in brackets % with a claim withheld. Power: % of pairs with
the better row that are claimed, and by the test alone. A standard error at 6 % of 10,000: 0.24.
The rules are vectorized by docs/studies/coverage.py and `stats.doubts`, and checked against
`compare` first.
"""

import argparse
import json
import sys
import tempfile
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "docs/studies"), str(ROOT / "tests")]

from coverage import by_block, pairs_of  # noqa: E402
from helpers.made_up_runs import made_up_run  # noqa: E402
from rlzoo_lab import stats  # noqa: E402
from rlzoo_lab.compare.comparison import compare  # noqa: E402

SEEDS, ROWS = (5, 8, 10, 20), (2, 5)
LOGIT, WIDTH = np.log(0.93 / 0.07), 1.5  # of accuracies near the ceiling


def ceiling(rng, shape):
    z = LOGIT + WIDTH * rng.normal(size=shape)
    return (1 / (1 + np.exp(-z)) - CEILING_MEAN) / CEILING_SD


_grid = np.linspace(-8, 8, 200_001)
_weight = np.exp(-(_grid**2) / 2)
_share = 1 / (1 + np.exp(-(LOGIT + WIDTH * _grid)))
CEILING_MEAN = float(np.average(_share, weights=_weight))
CEILING_SD = float(np.average((_share - CEILING_MEAN) ** 2, weights=_weight) ** 0.5)
TOP = ((0 - CEILING_MEAN) / CEILING_SD, (1 - CEILING_MEAN) / CEILING_SD)


def normal(rng, shape):
    return rng.normal(size=shape)


def lognormal(rng, shape):
    return (np.exp(rng.normal(size=shape)) - np.exp(0.5)) / np.sqrt((np.e - 1) * np.e)


def exponential(rng, shape):
    return rng.exponential(size=shape) - 1


def coin(rng, shape):
    return rng.choice([-1.0, 1.0], size=shape)


# the first row's noise, the others', what theirs is multiplied by, bounds
ERRORS = {
    "normal": (normal, normal, 1, None),
    "normal, sd 1:3": (normal, normal, 1 / 3, None),
    "normal, sd 1:30": (normal, normal, 1 / 30, None),
    "lognormal, normal of half": (lognormal, normal, 0.5, None),
    "ceiling, normal of half": (ceiling, normal, 0.5, TOP),
    "exponential, mirrored": (exponential, exponential, -1, None),
    "exponential, steady": (exponential, normal, 0.1, None),
    "ceiling, steady": (ceiling, normal, 0.1, TOP),
    "lognormal, steady": (lognormal, normal, 0.1, None),
    "bimodal 50/50, steady": (coin, normal, 0.1, None),
}
# multiplier of the others, difference in the first row's standard deviation
POWER = {"normal, .5 sd": (1, 0.5), "normal, 1 sd": (1, 1), "normal, 2 sd": (1, 2),
         "sd 1:3, 2 sd of the steady row": (1 / 3, 2 / 3)}  # fmt: skip


def made(rng, first, others, scale, tables, n, rows):
    y = np.empty((tables, n, rows))
    y[..., 0] = first(rng, (tables, n))
    y[..., 1:] = scale * others(rng, (tables, n, rows - 1))
    return y


def judged(y, bounds):
    """Whether each pair is shown, and whether it is in doubt, (tables, pairs) each."""
    d, half = by_block(y)
    i, j = pairs_of(y.shape[2])
    x, z = np.moveaxis(y[..., i], 1, -1), np.moveaxis(y[..., j], 1, -1)
    unlike, leans = stats.doubts(x, z, x - z, bounds)
    return abs(d) > half, unlike | leans


def held_to_compare(rng):
    """Some tables as folders of runs: the verdict's pairs are the ones judged here."""
    seen = np.zeros(3, int)
    for at, (n, rows) in enumerate([(5, 2), (8, 5), (10, 2), (5, 5)] * 4):
        y = made(rng, ceiling, normal, (0.1, 0.5)[at % 2], 1, n, rows) * CEILING_SD + CEILING_MEAN
        y[..., 0] += 0.05 * (at % 3)
        for bounds in ((0.0, 1.0), None):
            with tempfile.TemporaryDirectory() as folder:
                for (seed, row), score in np.ndenumerate(y[0]):
                    place = Path(folder) / f"{row}-{seed}"
                    made_up_run(place, seed=seed, after=float(score), estimator__lam=row / 8)
                    for name in ("summary.json", "metrics.jsonl") if bounds is None else ():
                        text = (place / name).read_text()
                        (place / name).write_text(text.replace("accuracy", "score"))
                pairs = compare([folder]).pairs
            shown, doubt = judged(y, bounds)
            found = [(p.shown, bool(p.doubt)) for p in pairs]
            assert found == list(zip(shown[0], doubt[0], strict=True)), (y, bounds, found)
            seen += [shown.sum(), doubt.sum(), (shown & doubt).sum()]
    return seen


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tables", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    rng = np.random.default_rng(asked.seed)
    shown, doubted, both = held_to_compare(rng)
    print(f"equal to `compare`: pairs shown {shown}, in doubt {doubted}, withheld {both}\n")
    head = " | ".join(f"{rows} rows, {n}" for rows in ROWS for n in SEEDS)
    line = "|:--|" + "--:|" * (len(ROWS) * len(SEEDS))
    print(f"| wrong claims [withheld], % | {head} |\n{line}")
    kept = {}
    for name, (first, others, scale, bounds) in ERRORS.items():
        cells = []
        for rows in ROWS:
            for n in SEEDS:
                y = made(rng, first, others, scale, asked.tables, n, rows)
                shown, doubt = judged(y, bounds)
                wrong = 100 * (shown & ~doubt).any(1).mean()
                held = 100 * (shown & doubt).any(1).mean()
                kept[f"{name}; {rows}; {n}"] = (wrong, held, 100 * shown.any(1).mean())
                cells.append(f"{f'**{wrong:.1f}**' if wrong > 6 else f'{wrong:.1f}'} [{held:.1f}]")
        print(f"| {name} | {' | '.join(cells)} |", flush=True)
    print(f"\n| power, by the test alone, % | {head} |\n{line}")
    for name, (scale, effect) in POWER.items():
        cells = []
        for rows in ROWS:
            for n in SEEDS:
                y = made(rng, normal, normal, scale, asked.tables, n, rows)
                y[..., 0] += effect
                shown, doubt = (v[:, : rows - 1] for v in judged(y, None))
                now, before = 100 * (shown & ~doubt).mean(), 100 * shown.mean()
                kept[f"{name}; {rows}; {n}"] = (now, before)
                cells.append(f"{now:.1f}, {before:.1f}")
        print(f"| {name} | {' | '.join(cells)} |", flush=True)
    if asked.json:
        asked.json.write_text(json.dumps(kept, indent=1))


if __name__ == "__main__":
    main()
