"""Rollouts: from prompts to a batch with every column that somebody needs.

May import `lm`, `checks`, `oracle` and what lies below.

    advantages    KL in the reward, the estimator, whitening
    columns       columns of the policy, the reference, the critic and of plugins
    conversation  responses of several turns, with an environment that answers
    drawn         what a sampler gave, looked at
    evaluation    how good a policy is on held-out prompts
    experience    one batch whole: prompts, responses, columns, rewards, advantages
    responses     responses by a sampler; what samplers and column plugins may ask for
    sample        prompts drawn, and a batch of them with its scores
"""
