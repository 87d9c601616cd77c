"""Made-up batches on which a foreign function is called: those of the kit, without the rows that
some refuse."""

from typing import Any

import torch

from rlzoo.errors import RlzooError
from rlzoo.plugin.border import told
from rlzoo.plugin.component import Component, read_component
from rlzoo.plugin.registry import Zoo
from rlzoo_lab.kit.checks import made_up
from rlzoo_lab.kit.checks.subject import Subject


def greedy_scores(prompts):
    """The score of a greedy response to the prompt."""


# Columns that the zoo would compute and functions elsewhere take: made up here without it.
BENCH = Zoo([read_component("columns", greedy_scores, "rlzoo_lab.kit.foreign", shape="B")])


class NoGroupOfOne(Subject):
    """Some give a group of one its reward as it is, or an error, and other groups a baseline."""

    def batch(self, seed: int = 0, **changes: Any) -> made_up.Columns:
        groups = torch.tensor(made_up.GROUPS)
        if "groups" not in changes and len(changes.get("mask", groups)) == len(groups):
            changes["groups"] = torch.where(groups == ALONE, groups[0], groups)
        return super().batch(seed, **changes)


ALONE = 5


class EveryRowActs(Subject):
    """Some are NaN for all rows if one has no action: `finite_everywhere` reports it."""

    def batch(self, seed: int = 0, **changes: Any) -> made_up.Columns:
        if "mask" not in changes:
            mask = super().batch(seed, **changes)["response_mask"]
            mask[~mask.any(1), 0] = 1
            changes["mask"] = mask
        return super().batch(seed, **changes)


def runs(subject: Subject, seed: int = 0) -> str:
    """Why it cannot be called on the made-up batch; empty if it can."""
    try:
        subject.call(subject.batch(seed))
    except (Exception, SystemExit) as error:  # the border to foreign code
        return str(error) if isinstance(error, RlzooError) else told(error)
    return ""


def on_bench(component: Component) -> tuple[Subject, str]:
    """The component on made-up batches, without groups of one where these raise, and what they do;
    without responses that have no action where these make all NaN."""
    subject = Subject(component, BENCH)
    fault = runs(subject)
    if fault:
        return NoGroupOfOne(component, BENCH), fault
    tried = (subject, EveryRowActs(component, BENCH))
    return next((s for s in tried if _is_finite(s)), subject), ""


def _is_finite(s: Subject) -> bool:
    return all(bool(x.isfinite().all()) for x in s.call(s.batch()).values())
