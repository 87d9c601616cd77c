"""`rlzoo plugins [KIND] [WORD]`: lists components: names, summaries, or all details."""

import argparse
import itertools
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rlzoo.cli import guide
from rlzoo.cli.verb import Result
from rlzoo.errors import UsageError, nearest
from rlzoo.plugin.component import KINDS, Component

if TYPE_CHECKING:  # pluggy
    from rlzoo.plugin.registry import Zoo

Named = Sequence[tuple[str, Component]]  # each with the name that reaches it


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "looked_for",
        nargs="*",
        metavar="KIND|WORD",
        help=f"a kind ({', '.join(KINDS)}), a name, or words to search for",
    )


def run(arguments: argparse.Namespace) -> Result:
    from rlzoo.plugin.registry import load_zoo
    from rlzoo.plugin.sketch import sketch
    from rlzoo.recipe.elsewhere import meant
    from rlzoo.recipe.keys import KEYS, SECTIONS

    kind, words = _kind(arguments.looked_for)
    named = presets(kind, words)
    zoo = None if words or arguments.json else sketch(own=True)  # a list needs no torch
    if zoo is None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the broken ones are listed below
            zoo = load_zoo()
    text = " ".join(words)
    ours = any(text.lower() in shelf or any(text in c.options for c in shelf.values())
               for shelf in zoo.shelves.values())  # fmt: skip
    here = "" if ours else meant(text, zoo)  # KEY or KEY=NAME
    key, _, name = here.partition("=")
    notes = list(zoo.notes)
    if name and name in zoo.shelves.get(SECTIONS.get(key, ""), ()):
        kind, words, here = SECTIONS[key], [name], ""
    if here:
        listed: Named = []
        core = key in KEYS or f"{key}.name" in KEYS
        see = f"help keys {key}" if core else f"plugins {key.partition('.')[2]}"
        notes = [f"{text!r} of other trainers is {here} in rlzoo; see `rlzoo {see}`"]
    else:
        listed = [] if kind == "models" else find(zoo, kind, words, named)
    components = [
        {
            "kind": KINDS[c.kind].singular,
            "name": name,
            "summary": c.summary,
            "needs": list(c.needs),
            "options": {
                o.name: {"type": o.type_text, "default": o.default} for o in c.options.values()
            },
            "source": c.source,
            "origin": c.origin,
            "file": c.file,
        }
        for name, c in listed
    ]

    def view(_: Any) -> Iterator[str]:
        exact = [pair for pair in listed if pair[0] in map(str.lower, words)]
        if exact:
            others = [pair[0] for pair in listed if pair not in exact]
            yield from itertools.starmap(details, exact)
            yield from [f"also mentioned by: {' '.join(dict.fromkeys(others))}"] if others else ()
        elif listed:
            yield from (summaries if kind or words else names)(listed)
        for section, texts in named.items() if kind or words else ():
            yield f"{section}=NAME"
            yield guide.columns([*texts.items()], one_line=True)
        yield from [*map(str, zoo.broken), *notes]

    broken = [{"origin": b.origin, "reason": b.reason} for b in zoo.broken]
    return Result(
        {"components": components, "presets": named, "broken": broken, "notes": notes}, view
    )


def _kind(words: list[str]) -> tuple[str, list[str]]:
    """The kind that a first word names, in any of its forms, or none; and the other words."""
    forms = {form: k.plural for k in KINDS.values() for form in (k.plural, k.singular, k.key)}
    forms |= {"models": "models", "model": "models"}
    first = words[0].lower().replace("-", "_") if words else ""
    return (forms[first], words[1:]) if first in forms else ("", words)


def presets(kind: str, words: list[str]) -> dict[str, dict[str, str]]:
    """Section -> name -> summary of the models and tasks that are kept as files and mention every
    word."""
    from rlzoo.recipe.files import describe, list_configs

    found: dict[str, dict[str, str]] = {}
    for section in ("model", "task"):
        texts = {name: describe(path) for name, path in list_configs(section).items()}
        if kind in ("", f"{section}s"):
            wanted = [word.lower() for word in words]
            there = {n: t for n, t in texts.items() if all(w in f"{n} {t}".lower() for w in wanted)}
            found |= {section: there} if there else {}
    return found


def find(
    zoo: "Zoo", kind: str, words: list[str], named: Mapping[str, Any]
) -> list[tuple[str, Component]]:
    """(name, component) of a kind, or of all, that contain every word; raises UsageError if none
    does, and no preset, in `named`."""
    shelves = [zoo.shelves[kind]] if kind else list(zoo.shelves.values())
    every = [(name, c) for shelf in shelves for name, c in shelf.items()]

    def mentions(name: str, c: Component) -> bool:
        text = " ".join([name, *c.needs, *c.options, c.doc, c.origin]).lower()
        return all(word.lower() in text for word in words)

    matching = [(name, c) for name, c in every if mentions(name, c)]
    if words and not matching and not named:
        known = [name for name, _ in every] + ([] if kind else list(KINDS))
        what = kind.replace("_", " ") if kind else "plugins"
        raise UsageError(f"none of the {what} mention {' '.join(words)!r}"
                         f"{nearest(words[-1], known)}")  # fmt: skip
    return matching


def names(listed: Named) -> Iterator[str]:
    """The names of each kind."""
    for kind, group in itertools.groupby(listed, lambda pair: pair[1].kind):
        of_kind = [name for name, _ in group]
        yield f"{kind.replace('_', ' ')} ({len(of_kind)})"
        yield guide.fold("  ".join(of_kind), indent="  ")
    yield guide.fold(
        f"{len(listed)} components. `rlzoo plugins estimators` describes those of a kind; "
        "`rlzoo plugins NAME` prints all details of a component, or searches for a word; `rlzoo "
        "plugins models` lists the models."
    )


def summaries(listed: Named) -> Iterator[str]:
    """One line per component: its name and the beginning of its description."""
    for kind, group in itertools.groupby(listed, lambda pair: pair[1].kind):
        yield kind.replace("_", " ")
        yield guide.columns([(name, c.summary) for name, c in group], one_line=True)
    yield "`rlzoo plugins NAME` prints all details of a component."


def details(name: str, c: Component) -> str:
    """All details of a component; paragraphs of its docstring without indented lines are folded."""
    kind = KINDS[c.kind]
    many = kind.key == kind.plural
    place = f"{kind.key}.{name}" if many else kind.key
    parts = [
        "\n".join("  " + line for line in part.split("\n"))
        if "\n " in part
        else guide.fold(part, indent="  ")
        for part in c.doc.split("\n\n")
    ]
    options = [
        ("option", f"{place}.{o.name}={o.default!r}  {o.type_text}") for o in c.options.values()
    ]
    table = guide.columns(
        [
            ("choose", f"{kind.key}=[{name}]" if many else f"{kind.key}={name}"),
            *options,
            ("needs", " ".join(c.needs) or "nothing"),
            ("file", c.file),
            ("from", c.origin),
        ]
    )
    return "\n\n".join([f"{kind.singular.replace('_', ' ')} {name}", *parts, table, ""])
