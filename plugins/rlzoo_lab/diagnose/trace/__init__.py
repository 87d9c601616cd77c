"""`rlzoo trace`: one response with a row per token and the source of each number.

May import `train` and below, and no other verb.

    command   the arguments, the JSON and the printed output
    explain   the arithmetic of a row, written out and checked
    make      builds a trace from one row of a batch
    slider    lambda on the page
    sources   gets that batch from a run or a recipe
    tables    a trace as tables
    trace     the data of a trace: tokens, derivations, credit
    typed     builds that batch from typed numbers
"""
