"""The token MDP: the batch, the rules of an episode, its randomness.

May import `recipe` and the packages below; no model.

    batch  a mapping from column names to tensors that only gains columns
    noise  numbers that are a function of (seed, stream, step, row, position)
    rules  which prompts begin an episode, when it ends, and what it is worth
    turns  conversations: when a turn ends, what the environment answers, what of it enters a row
"""
