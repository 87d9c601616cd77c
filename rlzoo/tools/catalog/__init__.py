"""`rlzoo plugins`, `recipes` and `show`: what there is, and what a recipe would need.

May import `train` and what lies below, and no other verb.

    command  the three commands
    memory   what a run will hold in memory, from sizes alone
    tables   plugins, recipes, a recipe's values and its memory as tables
"""
