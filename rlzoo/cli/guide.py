"""Help for the command line: first steps, and the keys of recipes.

Imports neither torch nor rich, so that `rlzoo --help` is fast.
"""

import shutil
import textwrap
from collections.abc import Sequence

from rlzoo.errors import RlzooError, nearest
from rlzoo.plugin.component import KINDS

Lines = list[tuple[str, str]]  # what to type, and what it does

FIRST: Lines = [
    ("rlzoo run ppo_gae model=speller task=spelling lam=0.8", "train with PPO (half a minute)"),
    ("rlzoo run grpo seed=1 train.steps=30", "another method; key=value changes any setting"),
    ("rlzoo recipes", "list the methods; `rlzoo plugins` lists their parts"),
    ("rlzoo doctor RUN", "report what is wrong with a run"),
    ("rlzoo sweep ppo_gae lam=0,0.8,1 seed=0,1,2", "several runs, paired by seed, with a verdict"),
    ("rlzoo new estimator my_estimator", "your own plugin, with its tests"),
]

KEYS_PEOPLE_SET = ("model", "task", "estimator", "seed", "train.steps", "rollout.prompts",
                   "rollout.samples", "actor.lr", "kl.coef", "run.dir")  # fmt: skip

WHERE_THE_REST = (
    "lam=0.9 is short for estimator.lam=0.9 if no other key ends in lam; --seed 1 means "
    "seed=1. `rlzoo help keys [WORD]` lists all keys, `rlzoo show NAME` shows their values in a "
    "recipe, and docs/recipes.md explains them."
)


def width() -> int:
    return min(shutil.get_terminal_size().columns, 100)


def start(verbs: list[str]) -> str:
    """The text of `rlzoo` without arguments: commands to try first."""
    head = "rlzoo: token-level RL algorithms for language models, as plugins. First steps:"
    foot = "`rlzoo help` lists all verbs; `rlzoo help run` explains one. Tutorial: docs/tutorial.md"
    return "\n\n".join(
        [fold(head), _beside([line for line in FIRST if line[0].split()[1] in verbs]), fold(foot)]
    )


def table(verbs: Lines) -> str:
    """The text of `rlzoo help`: every verb."""
    head = "usage: rlzoo VERB ..., rlzoo help VERB, rlzoo help keys [WORD], rlzoo --version"
    foot = 'Completion in bash or zsh: eval "$(register-python-argcomplete rlzoo)"'
    return "\n\n".join([fold(head), _beside(verbs), fold(foot)])


def epilog(examples: Sequence[tuple[str, str]], takes_keys: bool) -> str:
    """The end of a verb's help: examples and the most common recipe keys."""
    parts = ["examples:\n" + _beside(list(examples))] if examples else []
    if takes_keys:
        parts += ["common keys:\n" + _beside(_common()), fold(WHERE_THE_REST)]
    return "\n\n".join(parts)


def usage(said: str) -> str:
    """A usage folded as argparse shows it, after `usage: `."""
    return textwrap.fill(
        " ".join(said.split()), width(), initial_indent=" " * 7, subsequent_indent=" " * 9
    ).lstrip()


def _common() -> Lines:
    """The most common keys with their meanings."""
    from rlzoo.recipe.files import list_configs
    from rlzoo.recipe.keys import KEYS, SECTIONS

    kinds = {section: KINDS[kind] for section, kind in SECTIONS.items()}
    lines = []
    for key in KEYS_PEOPLE_SET:
        meaning = KEYS[key if key in KEYS else f"{key}.name"].meaning
        if key == "model":
            meaning = ", ".join(list_configs(key))
        listed = f"; `rlzoo plugins {kinds[key].plural}`" if key in kinds else ""
        lines.append((f"{key}=...", meaning + listed))
    return lines


def keys(words: list[str]) -> str:
    """Every key of the core whose name or meaning has all the words; options of that name."""
    from rlzoo.recipe.keys import KEYS

    lines = [*_options(words[0])] if len(words) == 1 else []
    lines += [
        (key, f"{option.meaning}; {option.type_text}".removeprefix("; "))
        for key, option in KEYS.items()
        if all(word in f"{key} {option.meaning}".lower() for word in map(str.lower, words))
    ]
    if not lines:
        last = [part for key in KEYS for part in key.split(".")]
        raise RlzooError(f"no key mentions {' '.join(words)!r}{nearest(words[0], last)}")
    foot = "For the options of a component, see `rlzoo plugins gae`; then set estimator.lam=0.9."
    return "\n\n".join([_beside(lines), fold(foot)])


def is_key(word: str) -> bool:
    """Whether a word ends a key of the core or is an option of a component."""
    from rlzoo.recipe.keys import KEYS

    return any(word in (key, key.rpartition(".")[2]) for key in KEYS) or bool(_options(word))


def _options(word: str) -> Lines:
    """The key and component for each component option of this name, from the source."""
    from rlzoo.plugin.sketch import sketch
    from rlzoo.recipe.keys import COLLECTIONS, SECTIONS

    has: dict[str, list[str]] = {}
    places = {kind: f"{section}.NAME" for section, kind in COLLECTIONS.items()}
    places |= {kind: section for section, kind in reversed(SECTIONS.items()) if kind != "columns"}
    for component in sketch() or ():
        if word.rpartition(".")[2] in component.options and component.kind in places:
            key = f"{places[component.kind]}.{word.rpartition('.')[2]}"
            if key.endswith(f".{word}") or key == word:
                has.setdefault(key, []).append(component.name)
    return [(key, f"an option of {', '.join(names)}") for key, names in has.items()]


def fold(text: str) -> str:
    return textwrap.fill(text, width(), break_on_hyphens=False)


def _beside(lines: Lines) -> str:
    """Two columns; in a narrow terminal, the second is below the first."""
    left = max(len(command) for command, _ in lines) + 4
    if (room := width() - left) < 34:
        left, room = 6, width() - 6
        apart = True
    else:
        apart = False
    out = []
    for command, text in lines:
        told = textwrap.wrap(text, room, break_on_hyphens=False) or [""]
        if apart:
            out += textwrap.wrap(
                command, width() - 2, initial_indent="  ", subsequent_indent="      "
            )
            out += [" " * left + line for line in told]
        else:
            out.append(f"  {command}".ljust(left) + told[0])
            out += [" " * left + line for line in told[1:]]
    return "\n".join(line.rstrip() for line in out)
