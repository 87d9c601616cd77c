"""All rules, causes first: what must hold, settings, the critic, whether anything is learnt."""

from rlzoo.tools.doctor import broken, critic, learning, settings  # their rules register
from rlzoo.tools.doctor.rule import RULES, SEVERITIES

__all__ = ["RULES", "SEVERITIES", "broken", "critic", "learning", "settings"]
