"""`rlzoo plugins`, `recipes` and `show`: lists of components and recipes, and a recipe's needs.

May import `train` and the packages below, and no other verb.

    plugins  the components there are, and those that were left out
    recipes  the recipes there are
    show     a recipe resolved, and where each value came from
    tables   plugins, recipes and a recipe's values as tables
"""
