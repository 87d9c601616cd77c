"""Runs read back: what they wrote, and which of them can be compared. No torch.

May import `rlzoo.runs`, `rlzoo.recipe` and below.

    columns     lines of numbers held as columns
    comparable  what makes runs comparable: task, budget, evaluation
    record      a run read back: its steps, evaluations, recipe and summary
    scores      scores without runs: CSV files and arrays
"""
