"""The token MDP: the batch, the rules of an episode, and its randomness.

May import `recipe` and the packages below; no model.

    batch  a mapping from column names to tensors that only gains columns
    noise  random numbers as a function of (seed, stream, step, row, position)
    rules  prompts that start an episode, its end, and its score
    turns  conversations: the end of a turn, the environment's answer, and its tokens in a row
"""
