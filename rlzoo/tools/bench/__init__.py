"""`rlzoo bench`: what a step costs, alone and beside TRL.

May import `train` and what lies below, and no other verb.

    cases      one case, measured in a process of its own
    command    the arguments and what is printed
    parts      the parts that are measured: a step, sampling, the head, estimators, start-up
    peer_trl   TRL's side of a step: the same model, prompts and reward
    processes  the wall time of two processes beside one
    runner     runs cases in turn, sums them up, names the machine
    scaling    how the cost grows with samples and length
    tables     the tables, in a terminal and as Markdown
"""
