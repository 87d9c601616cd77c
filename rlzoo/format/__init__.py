"""Formats numbers and texts in the same way for all verbs.

May import `ops`, `stats`, `errors`. No torch.

    console  a terminal that shows texts of data and models safely
    numbers  formatting of intervals, percentages, bytes, thousands
    text     text of a model, made safe and readable in a terminal
    tokens   a response as a table: a row for each token, a column for each number
"""
