"""Makes language models fast: places rows and weights in memory and among processes.

May import `mdp`, `recipe`, `plugin`, `ops` and the packages below. Nothing here changes any result.

    decode         responses token by token, sampled with given uniform numbers
    device         the device that `auto`, cpu or cuda:1 stands for; the number of CPU threads
    engine         owns the networks and how they are computed: scores, gradients, optimizer steps
    head           log-probs, entropy and sums of pi squared straight from hidden states
    hf_internals   changes in live objects of transformers and torch; attention of rows in a line
    passes         how many rows pass through a network at once, on which rank, and their layout
    ranks          each rank samples and differentiates its share; all have the same batch
    recompute      gradient checkpointing in eval mode
    sampling_copy  a copy of the policy for sampling: in another dtype, adapters merged
    shard          weights sharded over ranks with FSDP2
    static         decoding of constant shape: a fixed cache, and CUDA graphs of its steps
"""
