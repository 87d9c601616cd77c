"""`rlzoo base`, `sft` and `reward train`: the models that RL starts from.

May import `train` and the layers below, and no other verb.

    base        the command `rlzoo base`: one of `configs/base/` again, or a new one for a task
    fit         training with transformers' Trainer, as the others share it
    implicit_reward  a causal LM whose log-ratio is a reward, from responses judged as a whole
    process_reward   a reward model that judges each step, from judged steps
    reward      a reward model from preferences
    pairs           preferences, demonstrations and judged steps, from a file or a folder
    sft         a policy from demonstrations
    task_base   a new base for a task, right as often as requested
    warm_start  a small model that has learned the format of its tasks and is sometimes right
"""
