"""Models without training: reward models, GGUF files, a preview of a run, a run's model exported.

May import `lm` of the core and below, `data` and `view`.

    export      `rlzoo model export`: a run's model as a transformers folder with a card
    gguf        GGUF files, converted once to ordinary model folders
    preview     what `rlzoo show` prints about a run before it starts: memory, prompts
    reward_models  outcome and process reward models: read, and called for scores
    tiny        the small models that rlzoo generates instead of downloading
"""
