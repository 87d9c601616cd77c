"""`rlzoo eval`: evaluates a policy.

May import `train` and below, and no other verb.

    command    the arguments, the JSON and the printed output
    pass_at_k  pass@k and maj@k from n responses, with intervals
    policy     a policy of a run or folder on held-out prompts
"""
