"""`rlzoo eval`: how good a policy is.

May import `train` and below, and no other verb.

    command    the arguments, JSON and what is printed
    pass_at_k  pass@k and maj@k out of n responses, with intervals
    policy     a policy of a run or folder on held-out prompts
    tables     its tables and samples
"""
