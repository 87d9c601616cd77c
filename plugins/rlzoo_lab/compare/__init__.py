"""`rlzoo compare`: which configuration is better, by how much, and how sure that is.

May import `train` and the layers below, and no other verb. No torch, no model.

    command     the arguments, JSON and what is printed
    comparison  differences, intervals and paired tests of rows
    html        a comparison as one page
    measures    what a row spent, and when it reached a score
    plots       its plots
    prompts     what runs gave prompt by prompt
    tables      its tables, in a terminal and as Markdown
    verdict     the verdict in a sentence, and how it was reached
"""
