"""`rlzoo sweep`: swept keys are rows, `seed` is replication.

May import `train` and the layers below, and the verb `compare`.

    board     the display of a running sweep
    command   the arguments, the runs, and the comparison at the end
    folder    a sweep's folder: its index
    forecast  what the sweep cannot show, reported before its first run
    plan      rows and jobs, checked before the first run
    work      one run, called by an executor on any machine
"""
