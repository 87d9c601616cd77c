"""The zoo's arithmetic in JavaScript, for a page on which a reader moves numbers.

    advantage.js  estimators, losses and KL penalties, as pure functions

Tests compare each function with the component of the same name.
"""
