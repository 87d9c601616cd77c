"""Training: the loop, checkpoints and the files that a run writes.

May import `step` and the packages below.

    checkpoint      weights and optimizers as safetensors and JSON, with checksums
    interrupt       Ctrl-C: the first requests a checkpoint and an end
    loop            the loop and one training step: it reads like the algorithm
    record          summary, model and batches that a run leaves
    start           the entry points `run` and `resume`
    stopping        which evaluation was best, and whether training ends early
"""
