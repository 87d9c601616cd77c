"""The token MDP for gymnasium: the rules of `mdp`, one token at a time.

May import `lm`, `checks`, `oracle` and the packages below; `rollout` samples the fast way.

    kl_reward   a wrapper that puts the KL penalty into the reward
    rules       the rules of a recipe's task
    token_env   one episode at a time
    vector_env  many at a time, on the model's device
"""

from rlzoo.env.kl_reward import KLRewardWrapper
from rlzoo.env.token_env import TokenEnv
from rlzoo.env.vector_env import TokenVectorEnv

__all__ = ["KLRewardWrapper", "TokenEnv", "TokenVectorEnv"]
