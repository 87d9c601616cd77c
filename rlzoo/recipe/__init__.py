"""Recipes: reads and checks a recipe from arguments and files, and plans the components it needs.

May import `plugin`, `data`, `format` and the packages below. No torch.

    cautions   warnings that components give for unsuitable recipes
    compose    layers of values, merged; each keeps the place where it was set
    elsewhere  what other trainers call the keys
    files      finds recipes and presets, and reads one as a layer
    keys       every key of the core: type, range, meaning
    plan       which components run, which columns and models they need; unmet needs
    teachers   which teacher is for which prompts
    validate   every key held against the core's keys and the options of the chosen components
    words      values as they are written on the command line; sweep syntax
"""

from rlzoo.recipe.compose import compose  # a package and its first verb: no torch behind it

__all__ = ["compose"]
