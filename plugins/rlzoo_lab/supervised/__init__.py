"""`rlzoo model base`, `sft` and `model reward`: the models that RL starts from.

May import `train` and the layers below, and no other verb.

    base        the command `rlzoo model base`: a model of `configs/base/`, or a new one for a task
    fit         training with transformers' Trainer, shared by the others
    forms       the columns in which data sets have prompts and responses
    implicit_reward  a causal LM whose log-ratio is a reward, from responses judged as a whole
    process_reward  a reward model that judges each step, from judged steps
    reward      a reward model from preferences
    pairs       preferences, demonstrations and judged steps, from a file or a folder
    sft         a policy from demonstrations
    task_base   a new base model for a task, with the requested accuracy
    warm_start  a small model that has learned its tasks' format and is sometimes correct
"""
