"""`rlzoo report RUN`: one page of a run: its trend, the groups of a step, the tokens of a response.

May import `train` and the layers below, and the doctor. No torch, no model.

    batches  saved batches and samples, as far as they can be read
    command  the arguments, and the page written once or again and again
    groups   the tab of a step: prompts, their groups, rewards, advantages
    html     the page: what the run is, and three tabs
    remarks  the doctor's findings on a run, and since which step
    tokens   the tab of a response: the numbers of its tokens
    trend    the tab of the whole run: metrics as curves
"""
