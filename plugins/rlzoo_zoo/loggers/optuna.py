"""Reports evaluations to a trial of an Optuna study, which may end the run early."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from types import SimpleNamespace
from typing import Any

from rlzoo import RlzooError, component
from rlzoo_zoo.packages import needs

UNDER_WAY: ContextVar[Any] = ContextVar("trial", default=None)


@contextmanager
def for_trial(trial: Any) -> Iterator[None]:
    """Runs within, with `loggers=optuna`, report to this trial; raises
    optuna.TrialPruned at the end where one was ended early."""
    import optuna

    state = SimpleNamespace(trial=trial, pruned=False)
    token = UNDER_WAY.set(state)
    try:
        yield
    finally:
        UNDER_WAY.reset(token)
    if state.pruned:
        raise optuna.TrialPruned


def under_way(**options):
    needs("optuna", "tune")()
    if UNDER_WAY.get() is None:
        raise RlzooError("no trial is running: call it within rlzoo_zoo.loggers.for_trial(trial)")


@component("logger", check=under_way)
class Optuna:
    """Reports each evaluation to an Optuna trial; the study's pruner may end the run.

    A pruned run ends like any other, with a checkpoint, a model and a summary, which gives the
    reason under `stopped`. The trial is set by `rlzoo_zoo.loggers.for_trial(trial)` around
    `rlzoo.run` or `rlzoo.resume`; a resumed run does not report anything twice. `metric` is the
    reported evaluation metric. It fails if good settings start slowly, because they are pruned.
    Source: Akiba et al. 2019, arXiv:1907.10902; asynchronous successive halving (ASHA),
    Optuna's SuccessiveHalvingPruner: Li et al. 2018, arXiv:1810.05934.
    """

    def __init__(self, path, *, metric: str = "eval/score"):
        under_way()
        self.metric, self.state = metric, UNDER_WAY.get()
        trial = self.state.trial
        self.told = set(trial.study.get_trials(deepcopy=False)[trial.number].intermediate_values)

    def log(self, metrics):
        """metrics: a flat mapping of one step or one evaluation; returns why the run ends here,
        where it does."""
        if self.metric not in metrics or metrics["step"] in self.told:
            return None
        trial, step = self.state.trial, metrics["step"]
        trial.report(metrics[self.metric], step)
        if not trial.should_prune():
            return None
        self.state.pruned = True
        return f"trial {trial.number} is pruned: {self.metric} {metrics[self.metric]:.3f}"

    def close(self): ...
