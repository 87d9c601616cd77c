"""Rollouts: prompts, responses and their scores.

May import `lm` and the packages below.

    conversation  responses of several turns, with an environment that answers
    evaluation    how good a policy is on held-out prompts
    responses     responses by a sampler; what samplers and column plugins may use
    sample        prompts drawn, and a batch of them with its scores
"""
