"""`rlzoo compare`: which configuration is better, by how much, and with what confidence.

May import `train` and the layers below, and no other verb. No torch, no model.

    command     the arguments, the JSON and the printed output
    comparison  differences, intervals and paired tests of rows
    html        a comparison as one HTML page
    measures    what a row spent, and when it reached a score
    plots       the plots
    prompts     results per prompt
    tables      the tables, for a terminal and as Markdown
    verdict     the verdict in a sentence, and how it was computed
"""
