"""Metrics as a CSV file, for spreadsheets."""

import csv as csv_module
from typing import Any

from rlzoo import component


@component("logger")
class Csv:
    """Writes `metrics.csv` into the run folder: a row per step or evaluation, a column per metric.

    If a new metric appears later, the file is rewritten with a column for it.
    Source: RFC 4180.
    """

    def __init__(self, path):
        self.path = path / "metrics.csv"
        self.names = []
        self.file: Any = None

    def log(self, metrics):
        """metrics: a flat mapping of one step or one evaluation."""
        new = [name for name in metrics if name not in self.names]
        if new:
            self._widen([*self.names, *new])
        csv_module.DictWriter(self.file, self.names).writerow(metrics)
        self.file.flush()

    def close(self):
        if self.file is not None:
            self.file.close()

    def _widen(self, names):
        """The rows so far under more columns; a kill leaves the file as it was."""
        self.close()
        aside = self.path.with_name(".metrics.csv.partial")
        with open(aside, "w", newline="") as file:
            writer = csv_module.DictWriter(file, names)
            writer.writeheader()
            if self.names:  # else the file is of before a resume: its rows come again
                with open(self.path, newline="") as before:
                    writer.writerows(csv_module.DictReader(before))
        aside.replace(self.path)
        self.names = names
        self.file = open(self.path, "a", newline="")  # noqa: SIM115
