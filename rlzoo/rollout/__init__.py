"""Rollouts: prompts, responses and their scores.

May import `lm` and the packages below.

    conversation  responses with several turns and an environment that answers
    evaluation    evaluation of a policy on held-out prompts
    sample        prompts, responses by a sampler, their scores; resources of plugins
"""
