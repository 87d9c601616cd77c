"""Reports, before the first run, what a sweep will not be able to show."""

from pathlib import Path

from rlzoo_lab import stats
from rlzoo_lab.compare.sweep.plan import Sweep
from rlzoo_lab.data.columns import Columns
from rlzoo_lab.data.comparable import differences, read_sweep
from rlzoo_lab.data.record import Record


def forecast(sweep: Sweep, reference: bool) -> list[str]:
    """A line for each problem of its comparison: too few seeds, or rows on different scales.

    reference: whether a reference row is named.
    """
    if len(sweep.rows) < 2:
        return []
    return [line for line in (_seeds(sweep, reference), _scale(sweep)) if line]


def _seeds(sweep: Sweep, reference: bool) -> str:
    """Empty if a difference of `stats.LARGE` standard deviations would be shown."""
    before = {row["label"]: row["runs"] for row in read_sweep(sweep.path).get("rows", [])}
    runs = [
        {job.name for job in sweep.jobs if job.row == row.label} | set(before.get(row.label, []))
        for row in sweep.rows
    ]
    n, rows = min(map(len, runs)), len(sweep.rows)
    enough = stats.seeds_to_show(rows, reference=reference)
    if n >= enough:
        return ""
    if n < 2:
        now = "a single seed cannot establish any difference"
    else:
        least = stats.detectable(1.0, n, rows, reference=reference)
        now = (
            f"{n} seeds detect a difference only if it is at least {least:.1f} times the spread "
            "of seeds"
        )
    better = ", ".join(
        f"{k} show {stats.detectable(1.0, k, rows, reference=reference):.1f} times"
        for k in (enough, enough + 1, 8)
    )
    return (
        f"this sweep will be inconclusive: {now} (the standard deviation of paired differences); "
        f"{better} (seed=0..{enough - 1}, ...)"
    )


def _scale(sweep: Sweep) -> str:
    """Empty if all rows will be measured in the same way."""
    records = [
        Record(Columns(), Columns(), row.flat, {"eval_metric": row.metric}, Path(row.label))
        for row in sweep.rows
    ]
    found = differences(records)
    if not found:
        return ""
    what = "; ".join(f"{key}: {', '.join(values)}" for key, values in found.items())
    more = ""
    if "eval.max_new_tokens" in found:
        longest = max(row.recipe.config.rollout.max_new_tokens for row in sweep.rows)
        more = f"; eval.max_new_tokens={longest} measures all rows with the same length limit"
    return f"the rows will not be on one scale ({what}){more}"
