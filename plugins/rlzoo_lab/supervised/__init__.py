"""`rlzoo model`: the models that RL starts from, and a run's model exported.

May import `train` and the layers below.

    base        `rlzoo model base`: a new base model for a task
    export      `rlzoo model export`: a run's model as a transformers folder with a card
    fit         training with transformers' Trainer, shared by `sft` and the reward models
    forms       the columns in which data sets have prompts and responses
    gguf        GGUF files, converted once to ordinary model folders
    implicit_reward  a causal LM whose log-ratio is a reward, from responses judged as a whole
    options     the options of `sft` and `reward`
    pairs       preferences, demonstrations and judged steps, from a file or a folder
    process_reward  a reward model that judges each step, from judged steps
    reward      `rlzoo model reward`: from preferences, and the two above
    reward_models  outcome and process reward models: read, and called for scores
    sft         `rlzoo model sft`: a policy from demonstrations
    task_base   that model, trained to the requested accuracy
    tiny        the small models that rlzoo generates instead of downloading
    warm_start  a small model that has learned its tasks' format and is sometimes correct
"""
