"""Training: the loop, the update, and what a run writes.

May import `rollout`, `env` and what lies below.

    checkpoint      weights and optimizers as safetensors and JSON, with checksums
    critic_quality  how much a critic explains, where, and whether it is calibrated
    delayed         sampling by a policy of some updates ago
    interrupt       Ctrl-C: the first asks for a checkpoint and an end
    loop            the loop and one training step: it reads like the algorithm
    metrics         what a batch looks like in numbers
    optimizer       AdamW for actor and critic; learning rates
    record          summary, model and batches that a run leaves
    start           the entry points `run` and `resume`
    stopping        which evaluation was best, and whether training ends early
    trainer         a recipe opened: its models, its optimizers, one training step
    update          epochs x mini-batches x micro-batches of policy and value loss
    weights         which weights of a run: at its end, of its best evaluation, of a checkpoint
"""
