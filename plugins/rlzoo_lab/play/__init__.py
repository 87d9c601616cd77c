"""The zoo's arithmetic in JavaScript, for a page on which a reader moves numbers.

May import the layers below the verbs. The arithmetic is in files of its own, which tests compare
with the zoo's components, `rlzoo trace` and the oracle:

    advantage.js    estimators, losses and KL penalties, as pure functions
    derive.js       the arithmetic in writing
    world.js        a world of three tokens: exact advantages, bias and variance
"""
