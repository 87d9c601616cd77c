"""`rlzoo plugins`, `recipes` and `show`: what there is, and what a recipe would need.

May import `train` and what lies below, and no other verb.

    memory   what a run will hold in memory, from sizes alone
    plugins  the components there are, and those that were left out
    recipes  the recipes there are
    show     a recipe resolved, and where each value came from
    tables   plugins, recipes, a recipe's values and its memory as tables
"""
