"""Recipes: reads and checks a recipe from arguments and files, and plans the components it needs.

May import `plugin`, `format` and the packages below. No torch.

    compose    merges layers of values; each value keeps its origin
    elsewhere  the names of keys in other trainers
    faults     contradictions among a recipe's keys, and warnings about them
    files      finds recipes and presets, and reads them as layers
    keys       every key of the core: type, range, meaning
    plan       which components run, which columns and models they need; unmet needs
    validate   checks every key against the core's keys and the options of the chosen components
    words      values on the command line; sweep syntax
"""

from rlzoo.recipe.compose import compose  # a package and its first verb: no torch behind it

__all__ = ["compose"]
