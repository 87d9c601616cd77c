"""The token MDP: the batch, the rules of an episode, its randomness.

May import `recipe`, `parallel` and what lies below; no model.

    batch  a mapping from column names to tensors that only gains columns
    draws  prompts that a task draws
    noise  numbers that are a function of (seed, stream, step, row, position)
    rules  when an episode ends, and what it is worth
    turns  conversations: when a turn ends, what the environment answers, what of it enters a row
"""
