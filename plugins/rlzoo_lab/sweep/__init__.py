"""`rlzoo sweep`: swept keys are rows, `seed` is replication.

May import `train` and the layers below, and the verb `compare`.

    board     what a sweep shows while it goes
    command   the arguments, the runs, the comparison at the end
    folder    a sweep's folder: its index
    forecast  what it will not be able to show, before its first run
    plan      rows and jobs, checked before the first run
    work      one run, wherever an executor calls it
"""
