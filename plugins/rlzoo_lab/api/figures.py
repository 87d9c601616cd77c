"""A run's curves as a matplotlib figure."""

from collections.abc import Sequence
from typing import Any

from rlzoo.runs.metrics import REWARD
from rlzoo_lab.api.picture import held_out, points
from rlzoo_lab.view.figure import add_axes, add_legend, colour, in_light, new_figure, png


def draw(run: Any, metrics: Sequence[str]) -> Any:
    """Axes for each metric of a run's steps, one below the other; by default the reward, with
    held-out scores and their intervals. A notebook shows the figure with any backend."""
    figure = in_light(lambda: _figure(run, metrics))
    figure._repr_png_ = lambda: png(figure)
    return figure


def _figure(run: Any, metrics: Sequence[str]) -> Any:
    names = metrics or (REWARD,)
    figure = new_figure(8.0, 1.2 + 2.2 * len(names))
    for i, name in enumerate(names):
        axes = add_axes(figure, "step", name, (len(names), 1, i + 1))
        line = points(run.steps, name)
        axes.xaxis.get_major_locator().set_params(integer=True)
        axes.plot([x for x, _ in line], [y for _, y in line], color=colour(0), label=name)
        if not metrics:
            what, held = held_out(run.evaluations)
            y = [value for _, value, *_ in held]
            ends = [[v - low for _, v, low, _ in held], [high - v for _, v, _, high in held]]
            axes.errorbar([x for x, *_ in held], y, ends, fmt="o", markersize=4, color=colour(1),
                          label=f"held-out {what}, 95 %")  # fmt: skip
            axes.set_ylabel("reward")
            add_legend(figure, axes)
    return figure
