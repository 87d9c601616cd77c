"""`rlzoo report RUN`: a page about a run: its trend, the groups of a step, the tokens of a
response.

May import `train` and the layers below, and the doctor. No torch, no model.

    batches  saved batches and samples that can be read
    command  the arguments, and writing the page once or repeatedly
    groups   the tab of a step: prompts, their groups, rewards, advantages
    html     the page: a description of the run, and three tabs
    tokens   the tab of a response: the numbers of its tokens
    trend    the tab of the whole run: metrics as curves
"""
