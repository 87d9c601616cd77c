"""`rlzoo plugins`, `recipes` and `show`: lists of components and recipes, and a recipe's needs.

May import `train` and the packages below, and no other verb.

    plugins  the components, and plugins that were left out
    recipes  the recipes
    show     a resolved recipe with the origin of each value
    tables   plugins, recipes and a recipe's values as tables
"""
