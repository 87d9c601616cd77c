"""The rows of several values for a key: those of a sweep, and a recipe for each estimator in a
comparison, with its swept options."""

import contextlib
import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from rlzoo.errors import RecipeError, RlzooError, UsageError, nearest
from rlzoo.plugin.component import KINDS, Component
from rlzoo.plugin.registry import Zoo
from rlzoo.recipe.compose import WHOLE, Recipe, compose, full_keys, of_a_file
from rlzoo.recipe.keys import COLLECTIONS, KEYS, SECTIONS
from rlzoo.recipe.plan import Plan
from rlzoo.recipe.words import name_recipe, no_pair, split_values

EVERYTHING = "all"  # estimator=all


def variants(
    words: list[str], options: list[tuple[str, str]], zoo: Zoo, *, need_recipe: bool = True
) -> list[Recipe]:
    """Composed recipes. `words`: `key=value`, where the estimator and its options may have several
    values (`estimator=all`: all estimators); `options`: (name, text) of `--name text`."""
    every = [w for w in words if w == f"estimator={EVERYTHING}"]
    words = spell_out([w for w in words if w not in every], zoo) + every
    words += [f"estimator.{name}={text}" for name, text in options]
    choices: dict[str, list[str]] = {}
    for word in words:
        key, equals, text = word.partition("=")
        if not equals:
            raise no_pair(word, words)
        values = split_values(text)
        if key in ("estimator", "estimator.name"):
            choices["estimator"] = [*zoo.estimators] if text == EVERYTHING else values
        elif not key.startswith("estimator.") and key != "recipe" and len(values) > 1:
            raise UsageError(
                f"{key}={text}: only estimators and their options can be compared here; "
                "use `rlzoo sweep` for other keys"
            )
        else:
            choices[key] = values if key.startswith("estimator.") else [text]
    recipes = []
    written = {f"estimator.{name}": f"--{name}" for name, _ in options}
    for row in combinations(choices, zoo, written, need_recipe=need_recipe):
        make = partial(compose, zoo=zoo, need_recipe=need_recipe)
        recipe = make([f"{k}={v}" for k, v in row.items()])
        reads = zoo.estimators[recipe.config.estimator.name].needs
        if recipe.config.rollout.truncation == "bootstrap" and "values" not in reads:
            # Next to a critic's estimator: one that reads no values needs none after the end.
            row["rollout.truncation"] = "zero"
            recipe = make([f"{k}={v}" for k, v in row.items()])
        recipes.append(recipe)
    return recipes


def combinations(
    choices: Mapping[str, list[str]],
    zoo: Zoo,
    written: Mapping[str, str] = {},
    *,
    need_recipe: bool = True,
) -> Iterator[dict[str, str]]:
    """Each row's words, of the values of each key. An option applies to the components that have
    it; if the chosen component has no such option, the word is left out and the row appears once.
    written: how a key was written, where that was not `key=value`."""
    options = {k: place for k in choices if (place := _option_of(k))}
    others = [k for k in choices if k not in options]
    taken: set[str] = set()
    met: dict[str, dict[str, tuple[str, ...]]] = {k: {} for k in options}
    bases: list[tuple[dict[str, str], list[str]]] = []
    for values in itertools.product(*(choices[k] for k in others)):
        base = dict(zip(others, values, strict=True))
        base = {k: v for k, v in base.items() if _in_set(k, base)}
        if not options:
            bases.append((base, []))
            continue
        with naming_row(" ".join(f"{k}={v}" for k, v in base.items() if len(choices[k]) > 1)):
            recipe = compose([f"{k}={v}" for k, v in base.items()], zoo, need_recipe=need_recipe)
        applying = []
        for key, (section, option) in options.items():
            name = recipe.value(f"{section}.name")
            component = zoo.shelves[SECTIONS[section]][name] if name else None
            has = tuple(component.options) if component else ()
            met[key][name or "none"] = has
            if option in has:
                applying.append(key)
                taken.add(key)
        bases.append((base, applying))
    for key in options:
        if key not in taken:
            where = written.get(key, f"{key} (command line)")
            raise RecipeError(f"{where}: {_no_owner(options[key], met[key])}")
    for base, applying in bases:
        for values in itertools.product(*(choices[k] for k in applying)):
            row = base | dict(zip(applying, values, strict=True))
            yield {k: row[k] for k in choices if k in row}


def _option_of(key: str) -> tuple[str, str] | None:
    """(section, option) where the key is an option of a chosen component, not one of the core."""
    section, _, option = key.rpartition(".")
    return (section, option) if section in SECTIONS and key not in KEYS else None


def _in_set(key: str, row: Mapping[str, str]) -> bool:
    """Whether an option of `rewards.NAME` has its NAME among the row's `rewards=...`."""
    head, _, rest = key.partition(".")
    if head not in COLLECTIONS or not rest or head not in row:
        return True
    return rest.split(".")[0] in re.split(r"[\[\], ]+", row[head])


def _no_owner(place: tuple[str, str], met: Mapping[str, tuple[str, ...]]) -> str:
    section, option = place
    singular = KINDS[SECTIONS[section]].singular
    has = "; ".join(f"{name}: {', '.join(options) or 'none'}" for name, options in met.items())
    known = [o for options in met.values() for o in options]
    return (
        f"no chosen {singular} has an option {option!r} (available: {has}){nearest(option, known)}"
    )


@contextlib.contextmanager
def naming_row(row: str) -> Iterator[None]:
    try:
        yield
    except RlzooError as error:
        if row:
            raise type(error)(f"row {row}: {error}") from None
        raise


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
