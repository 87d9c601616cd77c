"""`rlzoo compare`: which configuration is better, by how much, and with what confidence.

May import `train` and the layers below, and no other verb. No torch, no model.

    command     the arguments, the JSON and the printed output
    comparison  differences, intervals and paired tests of rows
    measures    what a row spent, and when it reached a score
    curves      held-out scores, rewards, final scores, effects of a key
    factors     tables by a key, and main effects
    prompts     results per prompt
    tables      its tables, verdict and notes as blocks
    verdict     the verdict in a sentence, and how it was computed
"""
