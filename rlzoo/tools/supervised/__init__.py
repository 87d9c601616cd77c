"""`rlzoo base`, `sft` and `reward train`: the models that RL starts from.

May import `train` and what lies below, and no other verb.

    base        the command `rlzoo base`
    fit         training with transformers' Trainer, as the others share it
    reward      a reward model from preferences
    sft         a policy from demonstrations
    warm_start  a small model that knows the format of its tasks and is sometimes right
"""
