"""`rlzoo compare`: which configuration is better, by how much, and with what confidence.

May import `train` and the layers below, and no other verb. Only `eval` and `sweep` need torch.

    command     the arguments, the JSON and the printed output
    comparison  differences, intervals and paired tests of rows
    measures    what a row spent, when it reached a score, and results per prompt
    curves      held-out scores, rewards, final scores, effects of a key
    eval        `rlzoo eval`: how good a policy is: accuracy, pass@k, maj@k
    factors     tables by a key, and main effects
    sweep       `rlzoo sweep`: rows of runs, in worker processes, compared at the end
    tables      its tables, verdict and notes as blocks
    verdict     the verdict in a sentence, and how it was computed
"""
