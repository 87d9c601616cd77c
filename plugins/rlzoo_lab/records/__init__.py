"""Reading runs, and deciding which of them can be compared. No torch.

May import `rlzoo.runs`, `rlzoo.recipe` and below.

    columns     lines of numbers stored as columns
    comparable  the conditions for comparing runs: task, budget, evaluation
    record      a run as read from its folder: steps, evaluations, recipe and summary
    scores      scores without runs: CSV files and arrays
"""
