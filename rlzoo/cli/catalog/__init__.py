"""`rlzoo plugins`, `recipes` and `show`: what there is, and what a recipe would need.

May import `train` and what lies below, and no other verb.

    plugins  the components there are, and those that were left out
    recipes  the recipes there are
    show     a recipe resolved, and where each value came from
    tables   plugins, recipes and a recipe's values as tables
"""
