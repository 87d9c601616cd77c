"""The token MDP for gymnasium."""

from rlzoo.env.kl_reward import KLRewardWrapper
from rlzoo.env.token_env import TokenEnv
from rlzoo.env.vector_env import TokenVectorEnv

__all__ = ["KLRewardWrapper", "TokenEnv", "TokenVectorEnv"]
