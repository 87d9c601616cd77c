"""`rlzoo plugins [KIND] [WORD]`: lists components: names, summaries, or all details."""

import argparse
import itertools
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rlzoo.cli import guide
from rlzoo.cli.verb import Result
from rlzoo.errors import UsageError, nearest
from rlzoo.plugin.component import KINDS, Component, plain

if TYPE_CHECKING:  # pluggy
    from rlzoo.plugin.registry import Zoo

Named = Sequence[tuple[str, Component]]  # each with the name that reaches it

# A kind in any of its forms -> its plural.
FORMS = {form: k.plural for k in KINDS.values() for form in (k.plural, k.singular, k.key)}
FORMS |= {"models": "models", "model": "models"}

FOOT = (
    " components. `rlzoo plugins KIND` describes those of a kind; `rlzoo plugins NAME` prints all "
    "details of a component, or searches for a word; `rlzoo plugins models` lists the models."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    what = f"a kind ({', '.join(KINDS)}), a name, or words to search for"
    parser.add_argument("looked_for", nargs="*", metavar="KIND|WORD", help=what)


def run(arguments: argparse.Namespace) -> Result:
    from rlzoo.plugin.registry import load_zoo
    from rlzoo.plugin.sketch import sketch
    from rlzoo.recipe.elsewhere import meant
    from rlzoo.recipe.keys import KEYS, SECTIONS

    words = arguments.looked_for
    kind = FORMS.get(plain(words[0]), "") if words else ""
    words = words[1:] if kind else words
    named = presets(kind, words)
    zoo = None if words or arguments.json else sketch(own=True)  # a list needs no torch
    if zoo is None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the broken ones are listed below
            zoo = load_zoo()
    text, notes = " ".join(words), list(zoo.notes)
    ours = any(text.lower() in shelf for shelf in zoo.shelves.values())
    here = "" if ours else meant(text, zoo)  # KEY or KEY=NAME
    here = "" if here.endswith(f".{text}") else here  # an option's own name
    key, _, name = here.partition("=")
    if name and name in zoo.shelves.get(SECTIONS.get(key, ""), ()):
        kind, words, here = SECTIONS[key], [name], ""
    listed: Named = []
    if here and (key in KEYS or f"{key}.name" in KEYS):
        notes = [f"{text!r} of other trainers is {here} in rlzoo; see `rlzoo help keys {key}`"]
    elif kind != "models":
        section, _, option = here.partition(".")
        if option:  # of components of one kind
            kind, words = SECTIONS[section], [option]
            notes.append(f"{text!r} of other trainers is {here} in rlzoo")
        listed = find(zoo, kind, words, named)

    def view(_: Any) -> Iterator[str]:
        if exact := [pair for pair in listed if pair[0] in map(str.lower, words)]:
            others = [pair[0] for pair in listed if pair not in exact]
            yield from itertools.starmap(details, exact)
            yield from [f"also mentioned by: {' '.join(dict.fromkeys(others))}"] if others else ()
        elif listed:
            yield from lists(listed, whole=bool(kind or words))
        for section, texts in named.items() if kind or words else ():
            yield f"{section}=NAME"
            yield guide.columns([*texts.items()], one_line=True)
        yield from [*map(str, zoo.broken), *notes]

    broken = [{"origin": b.origin, "reason": b.reason} for b in zoo.broken]
    components = [document(name, c) for name, c in listed]
    return Result(
        {"components": components, "presets": named, "broken": broken, "notes": notes}, view
    )


def document(name: str, c: Component) -> dict[str, Any]:
    """A component as --json prints it."""
    return {
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


def presets(kind: str, words: list[str]) -> dict[str, dict[str, str]]:
    """Section -> name -> summary of the models and tasks that are kept as files and mention every
    word."""
    from rlzoo.recipe.files import describe, list_configs

    by_section: dict[str, dict[str, str]] = {}
    for section in ("model", "task"):
        texts = {name: describe(path) for name, path in list_configs(section).items()}
        texts = {n: t for n, t in texts.items() if _mention(words, f"{n} {t}")}
        if kind in ("", f"{section}s") and texts:
            by_section[section] = texts
    return by_section


def find(zoo: "Zoo", kind: str, words: list[str], named: Mapping[str, Any]) -> Named:
    """(name, component) of a kind, or of all, that contain every word; raises UsageError if none
    does, and no preset, in `named`."""
    shelves = [zoo.shelves[kind]] if kind else list(zoo.shelves.values())
    every = [pair for shelf in shelves for pair in shelf.items()]
    matching = [
        (name, c)
        for name, c in every
        if _mention(words, " ".join([name, *c.needs, *c.options, c.doc, c.origin]))
    ]
    if words and not matching and not named:
        known = [name for name, _ in every] + ([] if kind else list(KINDS))
        what = f"{kind.replace('_', ' ') or 'plugins'} mention {' '.join(words)!r}"
        raise UsageError(f"none of the {what}{nearest(words[-1], known)}")
    return matching


def _mention(words: list[str], text: str) -> bool:
    return all(word.lower() in text.lower() for word in words)


def lists(listed: Named, *, whole: bool) -> Iterator[str]:
    """The components of each kind: with the beginnings of their descriptions, or only names."""
    for kind, group in itertools.groupby(listed, lambda pair: pair[1].kind):
        head, pairs = kind.replace("_", " "), list(group)
        if whole:
            yield head
            yield guide.columns([(name, c.summary) for name, c in pairs], one_line=True)
        else:
            yield f"{head} ({len(pairs)})"
            yield guide.fold("  ".join(name for name, _ in pairs), indent="  ")
    foot = f"{len(listed)}{FOOT}"
    yield "`rlzoo plugins NAME` prints all details of a component." if whole else guide.fold(foot)


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
    lines = [
        ("choose", f"{kind.key}=[{name}]" if many else f"{kind.key}={name}"),
        *(
            ("option", f"{place}.{o.name}={o.default!r}  {': '.join(filter(None, about))}")
            for o in c.options.values()
            for about in [(o.type_text, o.meaning)]
        ),
        ("needs", " ".join(c.needs) or "nothing"),
        ("file", c.file),
        ("from", c.origin),
    ]
    head = f"{kind.singular.replace('_', ' ')} {name}"
    return "\n\n".join([head, *parts, guide.columns(lines), ""])
