"""`bench`: measures the cost of a step on this machine, also compared with TRL.

TRL's side of `--peer trl` is peer_trl.py, which imports nothing of rlzoo.

    cases    one case, measured in its own process
    command  the options, and the document
    common   code that both sides of a comparison share: reward, clock, memory, repeats
    gpu      how much of a device a step uses: share of its bandwidth, MFU
    parts    the parts of a benchmark: estimators, head, sampling, step, start-up, ...
    runner   runs the cases, summarizes them, and describes the machine
    scaling  how the cost grows with samples and length
    tables   the tables, for a terminal and as Markdown
"""
