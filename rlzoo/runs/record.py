import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml

from rlzoo.recipe.keys import COLLECTIONS
from rlzoo.runs.folder import RunFolder

Flat = dict[str, Any]


@dataclass
class Record:
    """A finished run."""

    path: Path
    config: Flat
    metrics: list[dict[str, Any]] = field(repr=False)
    summary: dict[str, Any]

    @property
    def seed(self) -> int:
        return self.config["seed"]

    @property
    def score(self) -> float:
        return self.summary["eval_after"]

    @cached_property
    def evaluations(self) -> list[tuple[int, float, float]]:
        """(step, tokens generated so far, held-out score) of each evaluation."""
        key = f"eval/{self.summary['eval_metric']}"
        tokens = {0: 0.0} | {m["step"]: m["perf/tokens"] for m in self.steps}
        return [(m["step"], tokens.get(m["step"], 0.0), m[key]) for m in self.metrics if key in m]

    @cached_property
    def steps(self) -> list[dict[str, Any]]:
        """The lines of training steps."""
        return [m for m in self.metrics if "perf/tokens" in m]

    def late(self, name: str) -> float | None:
        """Mean of a metric over the last tenth of the steps; None where it was not recorded."""
        last = self.steps[-max(1, len(self.steps) // 10) :]
        values = [m[name] for m in last if m.get(name) is not None]
        return sum(values) / len(values) if values else None

    @cached_property
    def length(self) -> float | None:
        """Of the last evaluation's responses, in tokens."""
        found = [m["eval/response_length"] for m in self.metrics if "eval/response_length" in m]
        return found[-1] if found else None


def failure(path: Path) -> str:
    """Why a sweep's run failed, or an empty string."""
    try:
        return json.loads((path / "failed.json").read_text(encoding="utf-8"))["reason"]
    except (OSError, ValueError):
        return ""


def read_record(path: Path) -> Record | str:
    """A finished run, or what it lacks."""
    folder = RunFolder(path)
    try:
        text = (path / "recipe.yaml").read_text(encoding="utf-8")
        tree, summary = yaml.safe_load(text), folder.summary()
        metrics = folder.read("metrics.jsonl")
        if not summary:
            step = max((m["step"] for m in metrics), default=0)
            return f"not finished (it is at step {step})"
        config = flatten(tree)
        config["recipe"] = text.split("\n", 1)[0].lstrip("# ").strip()
        for section in COLLECTIONS:
            config[section] = "+".join(tree.get(section) or {})
        record = Record(path, config, metrics, summary)
        _ = record.seed, record.score, record.evaluations, record.length
    except (OSError, ValueError, KeyError, TypeError, AttributeError, yaml.YAMLError) as error:
        return f"cannot be read ({type(error).__name__}: {str(error).splitlines()[0]})"
    return record


def flatten(tree: Mapping[str, Any], prefix: str = "") -> Flat:
    """Nested mappings -> dotted keys."""
    flat: Flat = {}
    for name, value in tree.items():
        if isinstance(value, dict):
            flat |= flatten(value, f"{prefix}{name}.")
        else:
            flat[f"{prefix}{name}"] = value
    return flat
