"""The token MDP for gymnasium.

token_env    one episode at a time
vector_env   many at a time
kl_reward    KL in the reward
episodes     what both go by: rules, and rows that grow token by token
"""

from rlzoo.env.kl_reward import KLRewardWrapper
from rlzoo.env.token_env import TokenEnv
from rlzoo.env.vector_env import TokenVectorEnv

__all__ = ["KLRewardWrapper", "TokenEnv", "TokenVectorEnv"]
