"""One training step: a batch with its columns and advantages, and the update that reads them.

May import `rollout` and what lies below.

    advantages      KL in the reward, the estimator, whitening
    columns         columns of the policy, the reference, the critic and of plugins
    critic_quality  how much a critic explains, where, and whether it is calibrated
    delayed         sampling by a policy of some updates ago
    experience      one batch whole: prompts, responses, columns, rewards, advantages
    metrics         what a batch looks like in numbers
    optimizer       AdamW for actor and critic; learning rates
    trainer         a recipe opened: its models, its optimizers, one training step
    update          epochs x mini-batches x micro-batches of policy and value loss
"""
