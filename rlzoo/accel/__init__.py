"""Makes language models fast: places rows and weights in memory and among processes.

May import `mdp`, `recipe`, `plugin`, `ops` and the packages below. Nothing here changes a number.

    attention      each row's own, where rows share prompts
    cache          KV caches that grow in place, or have a fixed shape
    decode         responses token by token, each token drawn by its uniform number
    device         the device that `auto`, cpu or cuda:1 stands for
    engine         the passes of an update: made ahead, shared among ranks, with small gradients
    graphs         CUDA graphs of a step that is always the same
    head           log-probs, entropy and sums of pi squared straight from hidden states
    hf_internals   what is changed in live objects of transformers and torch
    layout         how rows are laid out in a forward pass: side by side, or prompts once
    memory         how much memory a pass may take
    passes         how rows go through a network: how many at once, on which rank
    ranks          each rank samples and differentiates its share; all hold the same batch
    recompute      gradient checkpointing, in eval mode both times
    sampling_copy  the policy's network as it samples: in another dtype, adapters merged
    shard          weights in shards over ranks, by FSDP2
    threads        how many CPU threads a model is worth
"""
