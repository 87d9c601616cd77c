"""All rules, causes first: a run's own components, settings, exact facts, data, symptoms."""

from rlzoo_lab.doctor import agents, broken, components, data, settings, symptoms
from rlzoo_lab.doctor.rule import RULES

ORDER = [m.__name__ for m in (components, settings, broken, data, agents, symptoms)]
RULES.sort(key=lambda rule: ORDER.index(rule.judge.__module__))  # stable: each file's own order

__all__ = ["ORDER", "RULES"]
