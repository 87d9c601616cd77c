"""One training step: a batch with its columns and advantages, and the update that uses them.

May import `rollout` and the packages below.

    columns    columns of models and of plugins; KL in the reward, the estimator, whitening
    delayed    sampling by a policy from some updates ago
    metrics    metrics of a batch; how much a critic explains, and whether it is calibrated
    optimizer  AdamW, Muon and SGD
    trainer    a recipe opened; one training step: prompts, responses, columns, the update
    update     epochs x mini-batches x micro-batches of policy and value loss
"""
