"""`rlzoo advise`: which estimator and lambda to prefer on a model and a task, by a short pilot.

May import `train` and the layers below, and no other verb.

    command   arguments, and what is printed
    pilot     a run's first steps, and each estimator's gradient on their batches
    quality   how much of the true gradient that is, by pairs of independent parts of the data
    standin   the same in a made-up world like the task, whose true gradient is known
"""
