"""Checks of loggers: objects that receive metrics during a run."""

import math
import tempfile
from pathlib import Path

from rlzoo.errors import RlzooError
from rlzoo_lab.kit.checks.subject import NotApplicable, Subject


def takes_what_a_run_gives(s: Subject) -> None:
    """It can be made in a run folder, accepts steps, evaluations with other names and NaN, and
    closes."""
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


ALL = (takes_what_a_run_gives,)
