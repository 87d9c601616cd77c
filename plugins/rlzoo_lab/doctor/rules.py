"""All rules, causes first: what must hold, settings, the critic, whether anything is learnt."""

from rlzoo_lab.doctor import broken, critic, learning, settings  # their rules register
from rlzoo_lab.doctor.rule import RULES, SEVERITIES

__all__ = ["RULES", "SEVERITIES", "broken", "critic", "learning", "settings"]
