"""`rlzoo advise`: which estimator and lambda to prefer on a model and a task, by a short pilot.

May import `train` and what lies below, and no other verb.

    command   arguments, and what is printed
    pilot     a few training steps, and each estimator's gradient on their batches
    quality   how much of the true gradient a batch's gradient holds, from pairs of its parts
"""
