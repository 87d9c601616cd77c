"""Coverage, family-wise error and power of every interval and verdict that `rlzoo compare` prints.

    python docs/studies/coverage.py            # 30 CPU seconds; writes the tables of compare.md
    python docs/studies/coverage.py --quick    # a tenth of the repetitions, printed only

Rows that are paired by seed: score = row + seed + noise, and the noise is of one of the kinds
below. Every rule is applied to many tables at once, with the critical values of `rlzoo_lab.stats`;
`tests/unit/test_coverage.py` holds it to `stats.block`, table by table.
"""

import argparse
import re
from functools import cache
from pathlib import Path

import numpy as np

from rlzoo_lab import stats

SEEDS = (3, 5, 8, 10, 20)
ROWS = (2, 5, 10)
PAGE = Path(__file__).resolve().parents[1] / "compare.md"

Array = np.ndarray


# ---------------------------------------------------------------- kinds of noise: (R, n, K), mean 0


def normal(rng, shape):
    return rng.normal(size=shape)


def heavy(rng, shape):
    return rng.standard_t(3, size=shape)


def skewed(rng, shape):
    return rng.exponential(size=shape) - 1


def bounded(rng, shape):
    """Accuracies of 64 samples about .9."""
    return rng.binomial(64, 0.9, size=shape) / 64 - 0.9


def collapsing(rng, shape):
    """One run in five ends at 0.05 where the others end at 0.95."""
    low = rng.random(shape) < 0.2
    return np.where(low, 0.05, 0.95) - 0.77 + 0.01 * rng.normal(size=shape)


def one_noisy(rng, shape):
    """One row scatters ten times as much."""
    noise = rng.normal(size=shape)
    noise[..., -1] *= 10
    return noise


def two_noisy(rng, shape):
    noise = rng.normal(size=shape)
    noise[..., -2:] *= 10
    return noise


def unlike(rng, shape):
    """Every other row is skewed, the rest normal."""
    noise = rng.normal(size=shape)
    noise[..., ::2] = rng.exponential(size=noise[..., ::2].shape) - 1
    return noise


def one_collapses(rng, shape):
    """The last row collapses in one seed of five, and has the mean of the others, which are
    steady."""
    noise = 0.01 * rng.normal(size=shape)
    noise[..., -1] = collapsing(rng, shape[:-1])
    return noise


ALIKE = {"normal": normal, "heavy tails": heavy, "skewed": skewed, "bounded": bounded,
         "collapsing": collapsing}  # fmt: skip
UNLIKE = {"one row x10": one_noisy, "two rows x10": two_noisy, "skewed and normal": unlike,
          "one row collapses": one_collapses}  # fmt: skip


# ---------------------------------------------------------------- the rules, on many tables


@cache
def pairs_of(rows: int) -> tuple[Array, Array]:
    return np.triu_indices(rows, 1)


def by_block(y: Array, reference: bool = False) -> tuple[Array, Array]:
    """(difference, half width of its interval), (R, pairs) each, as `stats.block`; reference: the
    first row is."""
    n, rows = y.shape[1:]
    i, j = pairs_of(rows)
    if reference:
        i, j = np.arange(1, rows), np.zeros(rows - 1, int)
    d = y[:, :, i] - y[:, :, j]
    freedom = (n - 1) * (rows - 1)
    rest = y - y.mean(1, keepdims=True) - y.mean(2, keepdims=True) + y.mean((1, 2), keepdims=True)
    pooled = np.sqrt(2 * (rest**2).sum((1, 2)) / freedom)[:, None]
    own = d.std(1, ddof=1)
    half = stats.critical(0.95, freedom, rows, reference=reference) * np.maximum(pooled, own)
    if rows > 2:
        half = np.maximum(half, stats.critical(1 - stats.OWN, n - 1) * own)
    return d.mean(1), np.where(half > 0, half / np.sqrt(n), np.inf)


def pooled_only(y: Array) -> tuple[Array, Array]:
    """Tukey's range with only the pooled residual: the block model of the textbooks."""
    n, rows = y.shape[1:]
    i, j = pairs_of(rows)
    freedom = (n - 1) * (rows - 1)
    rest = y - y.mean(1, keepdims=True) - y.mean(2, keepdims=True) + y.mean((1, 2), keepdims=True)
    half = stats.critical(0.95, freedom, rows) * np.sqrt(2 * (rest**2).sum((1, 2)) / freedom / n)
    means = y.mean(1)
    return means[:, i] - means[:, j], np.broadcast_to(half[:, None], (len(y), len(i)))


def by_signs(y: Array) -> Array:
    """Whether sign flips show each pair, after Holm's correction, (R, pairs)."""
    n, rows = y.shape[1:]
    i, j = pairs_of(rows)
    if stats.smallest_p(n) * len(i) > stats.ALPHA:
        return np.zeros((len(y), len(i)), bool)
    shown = []
    for table in y:
        ps = [stats.paired(table[:, a] - table[:, b]).p for a, b in zip(i, j, strict=True)]
        shown.append(np.array(stats.holm(ps)) <= stats.ALPHA)
    return np.stack(shown)


def rate(x) -> float:
    return 100 * float(np.mean(x))


# ---------------------------------------------------------------- tables


def single_intervals(rng, repetitions: int) -> str:
    """Coverage of a row's mean: Student's interval, and the bootstrap of the IQM (of its limit)."""
    lines = ["| seeds | interval | " + " | ".join(ALIKE) + " |", "|--:|:--|" + "--:|" * len(ALIKE)]
    limits = {name: stats.iqm(make(rng, 400_000)) for name, make in ALIKE.items()}
    for n in SEEDS:
        cells = []
        for make in ALIKE.values():
            x = make(rng, (repetitions, n))
            half = stats.critical(0.95, n - 1) * x.std(1, ddof=1) / np.sqrt(n)
            cells.append(f"{rate(abs(x.mean(1)) <= half + 1e-12):.0f}")
        lines.append(f"| {n} | mean, Student (printed) | " + " | ".join(cells) + " |")
        cells = []
        for name, make in ALIKE.items():
            hit = []
            for x in make(rng, (max(100, repetitions // 20), n)):
                low, high = stats.iqm_interval(x, 1000)
                hit.append(low - 1e-9 <= limits[name] <= high + 1e-9)
            cells.append(f"{rate(hit):.0f}")
        lines.append(f"| {n} | IQM, bootstrap (`--json`) | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def pair_intervals(rng, repetitions: int) -> str:
    """Coverage of one pair's difference: Student's paired interval, all seeds within."""
    kinds = {**ALIKE, "skewed and normal": unlike, "one row collapses": one_collapses}
    lines = ["| seeds | interval | " + " | ".join(kinds) + " |", "|--:|:--|" + "--:|" * len(kinds)]
    for n in SEEDS:
        student, within = [], []
        for make in kinds.values():
            y = make(rng, (repetitions, n, 2))
            d, half = by_block(y)
            student.append(f"{rate(abs(d) <= half):.0f}")
            gaps = y[:, :, 0] - y[:, :, 1]
            within.append(f"{rate((gaps.min(1) <= 0) & (gaps.max(1) >= 0)):.0f}")
        lines.append(f"| {n} | difference, 95 % | " + " | ".join(student) + " |")
        level = 100 * (1 - 2 / 2**n)
        lines.append(f"| {n} | all seeds within, {level:.4g} % | " + " | ".join(within) + " |")
    return "\n".join(lines)


def family(rng, repetitions: int) -> str:
    """Family-wise error of the verdict: any pair of equal means shown."""
    kinds = ALIKE | UNLIKE
    lines = ["| rows | seeds | " + " | ".join(kinds) + " |", "|--:|--:|" + "--:|" * len(kinds)]
    for rows in ROWS:
        for n in SEEDS:
            cells = []
            for name, make in kinds.items():
                if rows == 2 and name == "two rows x10":
                    cells.append("-")
                    continue
                y = make(rng, (repetitions, n, rows))
                d, half = by_block(y)
                error = rate((abs(d) > half).any(1))
                cells.append(f"**{error:.1f}**" if error > 6 else f"{error:.1f}")
            lines.append(f"| {rows} | {n} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def powers(rng, repetitions: int) -> str:
    """How often a true difference of 3 standard deviations of a run is shown, against one row."""
    lines = [
        "| rows | seeds | t test | reference named | heavy tails | skewed | bounded | collapsing "
        "| pooled only | its error, one row x10 | sign flips |",
        "|" + "--:|" * 11,
    ]
    for rows in ROWS:
        first = pairs_of(rows)[0] == 0
        for n in SEEDS:
            cells = []
            found = {}
            for name, make in ALIKE.items():
                y = make(rng, (repetitions, n, rows))
                sd = make(rng, 100_000).std()
                y[:, :, 0] += 3 * sd
                d, half = by_block(y)
                found[name] = f"{rate(abs(d)[:, first] > half[:, first]):.0f}"
                if name == "normal":
                    d, half = by_block(y, reference=True)
                    cells = [found[name], f"{rate(abs(d) > half):.0f}"]
                    d, half = pooled_only(y)
                    pooled = f"{rate((abs(d) > half)[:, first]):.0f}"
                    signs = f"{rate(by_signs(y[: max(20, repetitions // 200)])[:, first]):.0f}"
            d, half = pooled_only(one_noisy(rng, (repetitions, n, rows)))
            error = f"{rate((abs(d) > half).any(1)):.0f}"
            cells += [*(v for k, v in found.items() if k != "normal"), pooled, error, signs]
            lines.append(f"| {rows} | {n} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def stated(rng, repetitions: int) -> str:
    """True power at the difference that `detectable` states, of 80 %."""
    lines = ["| seeds | " + " | ".join(f"{k} rows" for k in ROWS) + " |", "|--:|--:|--:|--:|"]
    for n in SEEDS:
        cells = []
        for rows in ROWS:
            y = rng.normal(size=(repetitions, n, rows))
            y[:, :, 0] += (least := stats.detectable(1.0, n, rows)) * 2**0.5
            d, half = by_block(y)
            cells.append(f"{rate(abs(d)[:, 0] > half[:, 0]):.0f} % at {least:.2f}")
        lines.append(f"| {n} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def prompts(rng, repetitions: int) -> str:
    """Coverage of the interval over prompts, of two runs that are right on 0.6 and 0.7 of them."""

    def chances(n: int) -> Array:
        return np.clip(rng.normal([[0.6], [0.7]], 0.25, (2, n)), 0, 1)

    truth, sizes, cells = chances(2_000_000).mean(1), (64, 256, 1024), []
    for size in sizes:
        hit = []
        for _ in range(repetitions // 4):
            right = (rng.random(size) < chances(size)).astype(float)  # both share sampling noise
            _, (low, high) = stats.over_prompts([right[0] - right[1]], [np.arange(size)])
            hit.append(low <= truth[0] - truth[1] <= high)
        cells.append(f"{rate(hit):.0f} %")
    head = "| prompts | " + " | ".join(map(str, sizes)) + " |\n|:--|--:|--:|--:|\n"
    return head + "| these runs, 95 % | " + " | ".join(cells) + " |"


TABLES = {"rows": single_intervals, "pairs": pair_intervals, "family": family, "power": powers,
          "stated": stated, "prompts": prompts}  # fmt: skip
ON_PAGE = {
    "family": ("bounded", "two rows x10"),
    "power": (
        "heavy tails",
        "skewed",
        "bounded",
        "collapsing",
        "pooled only",
        "its error, one row x10",
    ),
    "stated": (),
}  # without


def for_page(table: str, without: tuple[str, ...]) -> str:
    """The rows of 3, 5 and 10 seeds, and all columns but those named."""
    head, *lines = [[cell.strip() for cell in line.split("|")] for line in table.splitlines()]
    seeds, kept = head.index("seeds"), [i for i, name in enumerate(head) if name not in without]
    shown = [head, lines[0], *(line for line in lines[1:] if line[seeds] in ("3", "5", "10"))]
    return "\n".join(" | ".join(line[i] for i in kept).strip() for line in shown)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true")
    quick = parser.parse_args().quick
    text = PAGE.read_text(encoding="utf-8")
    for name, make in TABLES.items():
        table = make(np.random.default_rng(0), 400 if quick else 10_000)
        print(f"\n{name}\n\n{table}", flush=True)
        if name in ON_PAGE:
            mark, shown = f"coverage-{name}", for_page(table, ON_PAGE[name])
            old = f"(<!-- {mark} -->\n).*?(<!-- /{mark} -->)"
            text = re.sub(old, rf"\1\n{shown}\n\n\2", text, flags=re.S)
    if not quick:
        PAGE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
