"""Reward models: loaded from folders, and called for scores.

The zoo takes them from `rlzoo`: `from rlzoo import reward_models`.

May import `lm` of the core and below.

    process_reward_model  a token classifier that scores each step of a response
    reward_model          a sequence classifier with one label that scores responses
"""

from rlzoo_lab.reward_models.process_reward_model import ProcessRewardModel
from rlzoo_lab.reward_models.reward_model import RewardModel

__all__ = ["ProcessRewardModel", "RewardModel"]
