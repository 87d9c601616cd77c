"""Reference numbers for tests/unit/test_stats.py, obtained by calling rliable's own functions.

rliable is not a dependency: run this by hand where it is installed, and keep `rliable.json`, which
it writes beside itself (versions, scores and what rliable makes of them):

    python -m venv env && env/bin/pip install rliable==1.2.0 'pandas<3'
    env/bin/python tests/reference/make_rliable.py

Scores are (runs, tasks). Intervals are bootstrap intervals of 50,000 repetitions, so they are
themselves known to some 1 % of their width.
"""

import json
from importlib.metadata import version
from pathlib import Path

import numpy as np
from rliable import library, metrics

REPETITIONS = 50_000
SHAPES = [(4, 1), (5, 1), (8, 1), (10, 1), (20, 1), (7, 3), (20, 2)]


def scores(runs, tasks, rng, lift):
    """Accuracies of 1,024 samples, so that ties occur, with a seed's and a task's own level."""
    level = 0.55 + lift + 0.08 * rng.normal(size=(runs, 1)) + 0.05 * rng.normal(size=(1, tasks))
    return rng.binomial(1024, np.clip(level + 0.05 * rng.normal(size=(runs, tasks)), 0, 1)) / 1024


def main():
    cases = []
    rng = np.random.default_rng(20)
    for runs, tasks in SHAPES:
        x, y = scores(runs, tasks, rng, 0.06), scores(runs, tasks, rng, 0.0)
        if runs == 5:
            x = x.round(1)  # ties
            y = y.round(1)

        def iqm(table):
            return np.array([metrics.aggregate_iqm(table)])

        def improvement(a, b):
            return np.array([metrics.probability_of_improvement(a, b)])

        points, intervals = library.get_interval_estimates(
            {"x": x, "y": y}, iqm, reps=REPETITIONS, random_state=np.random.RandomState(0)
        )
        better, better_interval = library.get_interval_estimates(
            {"x,y": (x, y)}, improvement, reps=2_000, random_state=np.random.RandomState(0)
        )
        cases.append(
            {
                "x": x.tolist(),
                "y": y.tolist(),
                "iqm": [float(points[k][0]) for k in "xy"],
                "iqm_interval": [intervals[k][:, 0].tolist() for k in "xy"],
                "improvement": float(better["x,y"][0]),
                "improvement_interval": better_interval["x,y"][:, 0].tolist(),
            }
        )
    document = {
        "versions": {name: version(name) for name in ("rliable", "arch", "numpy", "scipy")},
        "repetitions": REPETITIONS,
        "cases": cases,
    }
    path = Path(__file__).with_name("rliable.json")
    path.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
