"""A recipe and a plan for each estimator in a comparison, with its swept options."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from rlzoo.errors import RlzooError, UsageError, nearest
from rlzoo.plugin.component import Component
from rlzoo.plugin.registry import Zoo
from rlzoo.recipe.compose import WHOLE, Recipe, compose, full_keys, of_a_file
from rlzoo.recipe.plan import Plan
from rlzoo.recipe.words import name_recipe, split_values

EVERYTHING = "all"  # estimator=all

Swept = dict[str, tuple[str, list[str]]]  # option -> (as it was written, its values)


def variants(
    words: list[str], options: list[tuple[str, str]], zoo: Any, *, need_recipe: bool = True
) -> list[Recipe]:
    """Composed recipes. `words`: `key=value`, where the estimator and its options may have several
    values (`estimator=all`: all estimators); `options`: (name, text) of `--name text`. An option
    applies to the estimators that have it; raises UsageError if none has it."""
    fixed, names, swept = _sort(words, options, zoo)
    make = partial(compose, zoo=zoo, need_recipe=need_recipe)
    recipes = []
    for name in names:
        chosen = [*fixed, *([f"estimator={name}"] if name else [])]
        plain = make(chosen)
        estimator = zoo.estimators[plain.config.estimator.name]
        if plain.config.rollout.truncation == "bootstrap" and "values" not in estimator.needs:
            # Next to a critic's estimator: one that reads no values needs none after the end.
            chosen = [w for w in chosen if not w.startswith("rollout.truncation=")]
            chosen.append("rollout.truncation=zero")
            plain = make(chosen)
        has = [option for option in swept if option in estimator.options]
        for values in itertools.product(*(swept[option][1] for option in has)):
            own = [f"estimator.{o}={v}" for o, v in zip(has, values, strict=True)]
            recipes.append(make([*chosen, *own]) if own else plain)
    _check_owners(swept, [zoo.estimators[r.config.estimator.name] for r in recipes])
    return recipes


def spell_out(words: list[str], zoo: Zoo) -> list[str]:
    """Words of `key=A,B` with their short keys (`lam`) and files in full, as far as the recipes of
    the other words' values contain them; raises RecipeError where a short key is ambiguous."""
    words = [new for word in name_recipe(words) for new in of_a_file(word, zoo)]
    keys = [word.partition("=")[0].strip() if "=" in word else "" for word in words]
    short = {key for key in keys if key and "." not in key and key not in WHOLE}
    rest = {k: split_values(w.partition("=")[2]) for k, w in zip(keys, words, strict=True)
            if k not in {*short, "", "seed"}}  # fmt: skip
    known: dict[str, str] = {}
    try:
        for i in range(max(map(len, rest.values()), default=1) if short else 0):
            row = [f"{k}={values[min(i, len(values) - 1)]}" for k, values in rest.items()]
            known |= compose(row, zoo, need_recipe=False).origins
    except RlzooError:
        return words  # the fault is in another word, which gets its own error
    full = full_keys(short, known, keys)
    pairs = zip(keys, words, strict=True)
    return [full[k] + word[word.index("=") :] if k in full else word for k, word in pairs]


def in_full(words: list[str], zoo: Any) -> list[str]:
    """Check that no word lacks a key and that no recipe name is incomplete."""
    every = [w for w in words if w == f"estimator={EVERYTHING}"]
    return spell_out([w for w in words if w not in every], zoo) + every


def _sort(
    words: list[str], options: list[tuple[str, str]], zoo: Any
) -> tuple[list[str], list[str | None], Swept]:
    """Words that all recipes share, the names of estimators, and their options."""
    words = in_full(words, zoo)
    fixed: list[str] = []
    names: list[str | None] = [None]
    swept: Swept = {}
    written = [(word.partition("=")[0], word) for word in words]
    written += [(f"--{name}", f"estimator.{name}={text}") for name, text in options]
    for place, word in written:
        key, _, text = word.partition("=")
        if key in ("estimator", "estimator.name"):
            names = [*(zoo.estimators if text == EVERYTHING else split_values(text))]
        elif key.startswith("estimator."):
            swept[key.removeprefix("estimator.")] = place, split_values(text)
        elif key != "recipe" and len(split_values(text)) > 1:
            raise UsageError(
                f"{key}={text}: only estimators and their options can be compared here; "
                "use `rlzoo sweep` for other keys"
            )
        else:
            fixed.append(word)
    return fixed, names, swept


def _check_owners(swept: Swept, estimators: list[Any]) -> None:
    for option, (place, _) in swept.items():
        if not any(option in e.options for e in estimators):
            names = ", ".join(dict.fromkeys(e.name for e in estimators))
            theirs = {o for e in estimators for o in e.options}
            raise UsageError(
                f"{place}: not an option of {names} (available: "
                f"{', '.join(sorted(theirs)) or 'none'}){nearest(option, theirs)}"
            )


def shown_options(
    component: Component, options: Mapping[str, Any], words: list[str]
) -> dict[str, Any]:
    """Options to show: those given in `words` or not at their defaults."""
    given = {w.split("=", 1)[0].removeprefix("estimator.") for w in words}
    return {
        name: value
        for name, value in options.items()
        if name in given or value != component.options[name].default
    }


def together(plans: Sequence[Plan]) -> Plan:
    """A plan whose batch works for all of `plans`, which differ only in the estimator: the union of
    their needs and columns."""
    whole = next((p for p in plans if p.critic), plans[0])  # a critic brings its loss along
    columns = {bound.name: bound for plan in plans for bound in plan.columns}
    needs = frozenset().union(*(plan.needs for plan in plans))
    return replace(whole, needs=needs, columns=tuple(columns.values()))
