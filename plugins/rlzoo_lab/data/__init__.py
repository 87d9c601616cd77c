"""The contents of a run's folder, and which runs can be compared. Verbs open no file of a run.

May import `rlzoo.runs`, `rlzoo.recipe` and below. Only `batches` and `weights` need torch.

    batches     batches that a run saved, read back
    columns     lines of numbers stored as columns
    comparable  the conditions for comparing runs: task, budget, evaluation
    metrics     what each metric means
    record      a run as read from its folder: steps, evaluations, recipe and summary
    scores      scores without runs: CSV files and arrays
    staged      a folder that is written atomically
    strict      strict parsers for line-based files
    variants    one recipe, and its plan, for each estimator and option to compare
    weights     the weights of a run: at its end, at its best evaluation, or from a checkpoint
    words       command-line arguments that are runs, paths or options
"""
