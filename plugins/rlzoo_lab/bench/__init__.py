"""`rlzoo bench`: what a step costs on this machine, and compared with TRL.

May import `train` and the layers below, and no other verb.
TRL's side of `--peer trl` is tests/benchmarks/peer_trl.py, in a checkout.

    cases    one case, measured in a process of its own
    command  the options, and the document
    common   what both sides of a comparison share: reward, clock, memory, repeats
    gpu      how much of a device a step uses: share of its bandwidth, MFU
    parts    what each part measures: estimators, head, sampling, step, start-up, ...
    runner   runs cases in turn, sums them up, names the machine
    scaling  how the cost grows with samples and length
    tables   the tables, in a terminal and as Markdown
"""
