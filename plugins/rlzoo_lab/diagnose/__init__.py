"""`rlzoo diagnose`: bias, variance and what they cost, of any estimator.

May import `train` and the layers below, and no other verb.

    against            estimates with their errors by the jackknife
    asked              the requested estimators, critics and sizes
    branch_rollouts    the truth by branch rollouts where a world is too large to enumerate
    branch_tables      tables of `--branches`
    branches           `--branches K`: estimators against branch rollouts
    checkpoint_tables  tables of `--checkpoints`
    checkpoints        `--checkpoints`: the run's own critic against the truth, over training
    command            the arguments and which of the four it is
    critic_cells       V against what came of it, by position and in bins of V
    critic_tables      a critic by position, and in bins of its own values
    exact              in a made-up world, or the recipe's own on few tokens
    model_world        a recipe's model and task as an enumerated world
    plot               the bias-variance frontier, and the cosine against batch size
    saved              `diagnose RUN`: one saved batch through many estimators
    setting            a world and what a recipe does in it: each estimator run
    tables             tables of an exact diagnosis; numbers, and what all tables share
"""
