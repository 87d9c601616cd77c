"""All rules, causes first: exact facts, data, a policy that does not move, settings, critic,
learning."""

from rlzoo_lab.doctor import (
    around,
    broken,
    components,
    critic,
    data,
    learning,
    outcome,
    settings,
    still,
)
from rlzoo_lab.doctor.rule import RULES

ORDER = [
    m.__name__
    for m in (components, broken, data, still, around, settings, critic, outcome, learning)
]
RULES.sort(key=lambda rule: ORDER.index(rule.judge.__module__))  # stable: each file's own order

__all__ = ["ORDER", "RULES"]
