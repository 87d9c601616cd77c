"""Metrics as a CSV file, for spreadsheets."""

import csv as csv_module

from rlzoo import hookimpl


class Csv:
    """Writes `metrics.csv` into the run folder; its columns are those of the first step.

    Source: RFC 4180.
    """

    def __init__(self, path):
        self.file = open(path / "metrics.csv", "a", newline="", encoding="utf-8")  # noqa: SIM115
        self.writer = None

    def log(self, metrics):
        """metrics: a flat mapping of one step or one evaluation."""
        if self.writer is None:
            self.writer = csv_module.DictWriter(self.file, list(metrics), extrasaction="ignore")
            if self.file.tell() == 0:
                self.writer.writeheader()
        self.writer.writerow(metrics)
        self.file.flush()

    def close(self):
        self.file.close()


@hookimpl
def register_loggers(register):
    register(Csv)
