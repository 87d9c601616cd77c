"""`rlzoo advise`: recommends an estimator and lambda for a model and a task after a short pilot
run.

May import `train` and the layers below, and no other verb.

    command   the arguments and the printed output
    pilot     a run's first steps, and each estimator's gradient on their batches
    quality   cosine with the true gradient, from pairs of independent parts of the data
    standin   the same in an artificial world like the task, whose true gradient is known
"""
