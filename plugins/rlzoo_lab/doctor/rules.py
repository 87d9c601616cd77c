"""All rules, causes first: what must hold, a policy that stays, settings, the critic, learning."""

from rlzoo_lab.doctor import around, broken, critic, learning, outcome, settings, still
from rlzoo_lab.doctor.rule import RULES, SEVERITIES

ORDER = [m.__name__ for m in (broken, still, around, settings, critic, outcome, learning)]
RULES.sort(key=lambda rule: ORDER.index(rule.judge.__module__))  # stable: each file's own order

__all__ = ["ORDER", "RULES", "SEVERITIES"]
