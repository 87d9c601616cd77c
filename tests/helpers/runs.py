"""Runs cut short, and what their folders say."""

import json
from pathlib import Path

import pytest

CLOCK = ("timing_s/", "perf/seconds", "perf/tokens_per_second")


class StopAt:
    """A display that stops a run at a step, as Ctrl-C would; None: never. It keeps the notes."""

    def __init__(self, at):
        self.at = at
        self.notes = []

    def step(self, line, progress):
        if line["step"] == self.at:
            raise KeyboardInterrupt

    def note(self, text):
        self.notes.append(text)

    def __getattr__(self, name):
        return lambda *_: None


def lines(folder, name="metrics.jsonl"):
    """The lines of a run's file."""
    return [json.loads(line) for line in (Path(folder) / name).read_text().splitlines()]


def untimed(folder):
    """Metrics without what the clock wrote."""
    return [{k: v for k, v in x.items() if not k.startswith(CLOCK)} for x in lines(folder)]


def assert_same_metrics(one, other, tolerance):
    assert [x.get("step") for x in one] == [x.get("step") for x in other]
    for mine, theirs in zip(one, other, strict=True):
        assert set(mine) == set(theirs)
        for name in mine:
            if not name.startswith(CLOCK):
                assert mine[name] == pytest.approx(theirs[name], rel=tolerance, abs=tolerance), name
