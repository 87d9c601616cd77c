"""Several processes, one run: where tensors lie and how ranks agree.

May import `plugin`, `data`, `show` and what lies below.

    device  the device that `auto`, cpu or cuda:1 stands for
    ranks   each rank samples and differentiates its share; all hold the same batch
    shard   weights in shards over ranks, by FSDP2
"""
