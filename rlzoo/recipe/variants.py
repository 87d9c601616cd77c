import itertools
from typing import Any

from rlzoo.errors import TraceError, nearest


def variants(
    words: list[str], options: list[tuple[str, str]], zoo: Any, *, need_recipe: bool = True
) -> list[Any]:
    """A composed recipe for each estimator, with each of its swept options."""
    from rlzoo.recipe.compose import compose
    from rlzoo.recipe.words import has_sweep, split_values

    fixed: list[str] = []
    names: list[str | None] = [None]
    swept: dict[str, tuple[str, list[str]]] = {}  # option -> (as it was written, values)
    for word in [*words, *(f"estimator.{name}={text}" for name, text in options)]:
        key, text = word.split("=", 1)
        dotted = dict(options).get(key.removeprefix("estimator."))
        written = f"--{key.removeprefix('estimator.')}" if dotted == text else key
        if key in ("estimator", "estimator.name"):
            names = [*split_values(text)]
        elif key.startswith("estimator."):
            swept[key.removeprefix("estimator.")] = written, split_values(text)
        elif key != "recipe" and has_sweep(text):
            raise TraceError(
                f"{key}={text}: trace puts estimators and their options side by side; "
                "`rlzoo sweep` runs other keys"
            )
        else:
            fixed.append(word)
    recipes = []
    had: set[str] = set()
    for name in names:
        chosen = [*fixed, *([f"estimator={name}"] if name else [])]
        plain = compose(chosen, zoo, need_recipe=need_recipe)
        needs = zoo.estimators[plain.config.estimator.name].needs
        if plain.config.rollout.truncation == "bootstrap" and "values" not in needs:
            # Beside a critic's estimator, one that reads no value cares for none after the end.
            chosen = [*(w for w in chosen if not w.startswith("rollout.truncation=")),
                      "rollout.truncation=zero"]  # fmt: skip
            plain = compose(chosen, zoo, need_recipe=need_recipe)
        has = [o for o in swept if o in zoo.estimators[plain.config.estimator.name].options]
        had.update(has)
        for values in itertools.product(*(swept[o][1] for o in has)):
            own = [f"estimator.{o}={v}" for o, v in zip(has, values, strict=True)]
            recipes.append(compose([*chosen, *own], zoo, need_recipe=need_recipe) if own else plain)
    for option, (written, _) in swept.items():
        if option not in had:
            chosen_names = list(dict.fromkeys(r.config.estimator.name for r in recipes))
            theirs = {o for n in chosen_names for o in zoo.estimators[n].options}
            raise TraceError(
                f"{written}: no option of {', '.join(chosen_names)} "
                f"(there: {', '.join(sorted(theirs)) or 'none'}){nearest(option, theirs)}"
            )
    return recipes
