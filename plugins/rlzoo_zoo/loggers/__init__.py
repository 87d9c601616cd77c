"""Loggers."""

from rlzoo_zoo.loggers.optuna import for_trial

__all__ = ["for_trial"]
