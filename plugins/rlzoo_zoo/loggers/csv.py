"""Metrics as a CSV file, for spreadsheets."""

import csv as csv_module

from rlzoo import hookimpl


class Csv:
    """Writes `metrics.csv` into the run folder: a row per step or evaluation, a column per metric.

    A metric that comes up later gets its column then: the file is written anew.
    Source: RFC 4180.
    """

    def __init__(self, path):
        self.path = path / "metrics.csv"
        self.names = {}
        self.rows = []

    def log(self, metrics):
        """metrics: a flat mapping of one step or one evaluation."""
        self.rows.append(metrics)
        grown = self.names | dict.fromkeys(metrics)
        rows = [metrics] if grown == self.names else self.rows
        with open(self.path, "a" if rows is not self.rows else "w", newline="") as file:
            writer = csv_module.DictWriter(file, list(grown))
            if rows is self.rows:
                writer.writeheader()
            writer.writerows(rows)
        self.names = grown

    def close(self):
        """Every row is on disk already."""


@hookimpl
def register_loggers(register):
    register(Csv)
