"""Makes language models fast: places rows and weights in memory and among processes.

May import `mdp`, `recipe`, `plugin`, `ops` and the packages below. Nothing here changes any result.

    cache          KV caches that grow in place, or have a fixed shape
    decode         responses token by token, sampled with given uniform numbers
    device         the device that `auto`, cpu or cuda:1 stands for
    engine         owns the networks and how they are computed: scores, gradients, optimizer steps
    generation     responses by transformers' own loop
    graphs         CUDA graphs of a constant step
    head           log-probs, entropy and sums of pi squared straight from hidden states
    hf_internals   changes in live objects of transformers and torch
    layout         how rows are laid out in a forward pass: side by side, or prompts once; attention
    memory         how much memory a pass may take
    passes         how many rows pass through a network at once, and on which rank
    ranks          each rank samples and differentiates its share; all have the same batch
    recompute      gradient checkpointing in eval mode
    sampling_copy  a copy of the policy for sampling: in another dtype, adapters merged
    shard          weights sharded over ranks with FSDP2
    threads        the number of CPU threads for a model
"""
