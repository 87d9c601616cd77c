"""`rlzoo diagnose`: bias and variance of any estimator, and their cost.

May import `train` and the layers below, and no other verb.

    command            the arguments, and which of the modes they select
    credit             measures of each step that the doctor reads
    exact              in an artificial world
    saved              `diagnose RUN`: many estimators on one saved batch
    setting            a world, and every estimator of a recipe evaluated in it
    tables             tables of an exact diagnosis, and code that all tables share
    trace              `rlzoo trace`: one response, a row per token
"""
