"""Rollouts: from prompts to a batch with every column that somebody needs.

May import `lm`, `checks`, `oracle` and what lies below.

    advantages    KL in the reward, the estimator, whitening
    columns       columns of the policy, the reference, the critic and of plugins
    conversation  responses of several turns, with an environment that answers
    evaluation    how good a policy is on held-out prompts
    sample        prompts drawn, responses sampled, scores given
"""
