"""What a step costs on this machine: `rlzoo bench`.

command     the verb: what is asked for, the document that comes of it
parts       what each part measures, row by row: estimators, head, sampling, step, startup, ...
runner      a case in a process of its own, and what it says as a row
cases       the inside of that process
common      what both sides of a comparison share: reward, clock, memory
scaling     how the cost grows with samples and with length: points, fits, plot
tables      rows in 80 columns, and as Markdown

TRL's side of `--peer trl` is tests/benchmarks/peer_trl.py, in a checkout.
"""
