"""Shell completion of verbs, recipes, keys, components and run folders. No torch.

Enabled by `eval "$(register-python-argcomplete rlzoo)"`; see docs/recipes.md.
"""

import glob
import os
import re
import sys
from argparse import ArgumentParser
from collections.abc import Callable, Iterable
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from rlzoo.errors import RlzooError
from rlzoo.plugin.component import KINDS
from rlzoo.plugin.registry import Zoo
from rlzoo.plugin.sketch import sketch
from rlzoo.recipe.compose import compose
from rlzoo.recipe.files import list_configs
from rlzoo.recipe.keys import COLLECTIONS, KEYS, SECTIONS
from rlzoo.recipe.words import name_recipe


def complete(verbs: Iterable[str], parser_of: Callable[[str], ArgumentParser]) -> None:
    """Answer the shell's request, which is in the environment, and end the process."""
    if find_spec("argcomplete") is None:
        sys.exit("rlzoo: completion requires argcomplete: pip install 'rlzoo-llm[lab]'")
    import argcomplete  # here: no other command needs it

    line, point = os.environ["COMP_LINE"], int(os.environ["COMP_POINT"])
    known, verb = list(verbs), ""
    for begin in (r"\S+\s+\S+\s+", r"\S+\s+"):  # `model sft `, `run `
        typed = re.match(rf"\s*\S+\s+({begin})", line[:point])
        verb = " ".join(typed[1].split()) if typed else ""
        if verb in known:
            break
    if typed and verb in known:  # the verb's own parser does not expect it
        line = line[: typed.start(1)] + line[typed.end(1) :]
        os.environ |= {"COMP_LINE": line, "COMP_POINT": f"{point - len(typed[1])}"}
        parser = parser_of(verb)
        for action in parser._get_positional_actions():
            if action.choices:  # the parts of a verb
                continue
            action.completer = partial(words, str(action.metavar), line.split()[1:])  # type: ignore[attr-defined]
    else:
        parser = ArgumentParser()
        first = [name for name in known if " " not in name]
        parser.add_argument("verb", choices=[*first, "help"])
        if verb == "help":
            parser.add_argument("what", choices=[*first, "keys"])
    argcomplete.autocomplete(parser, always_complete_options=False)


def words(metavar: str, said: list[str], prefix: str, **_: Any) -> list[str]:
    """Completions of `prefix` for a positional argument of that metavar."""
    found: list[str] = []
    if "RUN" in metavar:
        found += _runs(prefix)
    if "key=value" in metavar:
        zoo = sketch() or Zoo()
        found += _values(prefix, zoo) if "=" in prefix else _keys(said, zoo)
    if metavar in ("KIND|WORD", "NAME", "KIND"):
        zoo = sketch() or Zoo()
        kinds = [k.singular for k in KINDS.values()] if metavar == "KIND" else [*KINDS]
        found += kinds if metavar != "NAME" else []
        found += [c.name for c in zoo] if metavar != "KIND" else []
    if metavar == "WORD":
        found += list_configs("recipes")
    return [word for word in found if word.startswith(prefix)]


def _runs(prefix: str) -> list[str]:
    """Run folders of `runs`, and the folders that the prefix leads to."""
    ours = [str(Path(p).parent) for p in glob.glob("runs/*/recipe.yaml")]
    ours += [str(Path(p).parent) for p in glob.glob("runs/*/sweep.json")]
    below = glob.glob(f"{glob.escape(prefix)}*/") if prefix else []
    return [*dict.fromkeys([*ours, *(path.rstrip("/") for path in below)])]


def _keys(said: list[str], zoo: Zoo) -> list[str]:
    """Recipes, and every key of the components chosen so far."""
    words = [word for word in name_recipe(said) if "=" in word]
    try:
        known = compose(words, zoo, need_recipe=False).origins
    except RlzooError:
        known = dict.fromkeys(KEYS, "")
    named = any(word.startswith("recipe=") for word in words)
    short = [f"{key}=" for key in ("model", *SECTIONS, *COLLECTIONS)]
    return [*([] if named else list_configs("recipes")), *short, *(f"{key}=" for key in known)]


def _values(prefix: str, zoo: Zoo) -> list[str]:
    """Values of a key; of several, the last."""
    key, _, value = prefix.partition("=")
    before = prefix[: len(prefix) - len(re.split(r"[,\[]", value)[-1])]
    section = key.removesuffix(".name")
    values: list[str] = []
    if key == "recipe":
        values += list_configs("recipes")
    elif section in ("model", "task"):
        values += list_configs(section)
    if kind := {**SECTIONS, **COLLECTIONS}.get(section):
        values += zoo.shelves[kind]
    elif key in KEYS:
        arms = get_args(KEYS[key].type) if get_origin(KEYS[key].type) is Literal else ()
        values += map(str, arms or (("true", "false") if KEYS[key].type is bool else ()))
    return [before + value for value in dict.fromkeys(values)]
