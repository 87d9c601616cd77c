"""`rlzoo trace`: one response, a row per token, each number with its source.

May import `train` and below, and no other verb.

    command  the arguments, JSON and what is printed
    explain  the arithmetic behind a row, spelled out and checked
    html     a trace as one page, each token shaded by its advantage
    make     a trace from one row of a batch
    sources  that batch, from a run or a recipe
    tables   a trace as tables
    trace    what a trace is: tokens, derivations, credit
    typed    that batch, from typed numbers
"""
