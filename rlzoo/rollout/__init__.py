"""Rollouts: prompts, responses and their scores.

May import `lm` and the packages below.

    conversation  responses with several turns and an environment that answers
    evaluation    evaluation of a policy on held-out prompts
    responses     responses by a sampler; resources of samplers and column plugins
    sample        draws prompts, and makes a batch of responses with scores
"""
