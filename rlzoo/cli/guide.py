"""Help for the command line: first steps, and the keys of recipes.

Imports neither torch nor rich, so that `rlzoo --help` is fast.
"""

import itertools
import shutil
import sys
import textwrap
from collections.abc import Mapping, Sequence

from rlzoo.cli.verb import GROUPS, Verb
from rlzoo.errors import RlzooError, nearest

Lines = list[tuple[str, str]]  # what to type, and what it does

FIRST: Lines = [
    ("rlzoo run ppo_gae lam=0.8", "train with PPO (half a minute)"),
    ("rlzoo run grpo seed=1", "another; key=value changes any setting"),
    ("rlzoo recipes", "list the methods; `rlzoo plugins` lists their parts"),
    ("rlzoo trace RUN", "one response, token by token; `rlzoo report RUN` writes a page"),
    ("rlzoo doctor RUN", "report what is wrong with a run; `rlzoo play` explains lambda"),
    ("rlzoo sweep ppo_gae lam=0,0.8,1 seed=0,1,2", "several runs, paired by seed, with a verdict"),
    ("rlzoo new estimator my_estimator", "your own plugin, with its tests"),
]

KEYS_PEOPLE_SET = ("model", "task", "estimator", "seed", "train.steps", "rollout.prompts",
                   "rollout.samples", "actor.lr", "kl.coef", "run.dir")  # fmt: skip

WHERE_THE_REST = (
    "`rlzoo help keys [WORD]` lists all keys, `rlzoo show NAME` shows their values in a recipe, "
    "and docs/recipes.md explains them. lam=0.9 is short for estimator.lam=0.9 if no other key "
    "ends in lam."
)


def width() -> int:
    return min(shutil.get_terminal_size().columns, 100)


def start(verbs: list[str]) -> str:
    """The text of `rlzoo` without arguments: commands to try first."""
    head = "rlzoo: token-level RL algorithms for language models, as plugins. First steps:"
    foot = "`rlzoo help` lists all verbs; `rlzoo help run` explains one. Tutorial: docs/tutorial.md"
    lines = [line for line in FIRST if line[0].split()[1] in verbs]
    return "\n\n".join([fold(head), columns(lines), fold(foot)])


def table(verbs: Mapping[str, Verb]) -> str:
    """The text of `rlzoo help`: every verb, by purpose."""
    head = "usage: rlzoo VERB ..., rlzoo help VERB, rlzoo help keys [WORD], rlzoo --version"
    foot = 'Completion in bash or zsh: eval "$(register-python-argcomplete rlzoo)"'
    names = sorted(verbs, key=lambda name: [*GROUPS, verbs[name].group].index(verbs[name].group))
    grouped = itertools.groupby(names, lambda name: verbs[name].group)
    heads = {f"  {next(members)}": group or "other" for group, members in grouped}
    lines = []
    for line in columns([(name, verbs[name].help) for name in names]).splitlines():
        start = f"  {line[2:].partition(' ')[0]}"
        lines += [heads[start], line] if start in heads else [line]
    return "\n\n".join([fold(head), "\n".join(lines), fold(foot)])


def epilog(examples: Sequence[tuple[str, str]], takes_keys: bool) -> str:
    """The end of a verb's help: examples and the most common recipe keys."""
    parts = ["examples:\n" + columns(list(examples))] if examples else []
    if takes_keys:
        parts += ["common keys:\n" + columns(_common()), fold(WHERE_THE_REST)]
    return "\n\n".join(parts)


def usage(text: str) -> str:
    """A usage folded as argparse shows it, after `usage: `."""
    return textwrap.fill(text, width(), initial_indent=" " * 7, subsequent_indent=" " * 9).lstrip()


def _common() -> Lines:
    """The most common keys with their meanings."""
    from rlzoo.recipe.files import list_configs
    from rlzoo.recipe.keys import KEYS, SECTIONS

    lines = []
    for key in KEYS_PEOPLE_SET:
        meaning = KEYS[key if key in KEYS else f"{key}.name"].meaning
        meaning = ", ".join(list_configs(key)) if key == "model" else meaning
        listed = f"; `rlzoo plugins {SECTIONS[key]}`" if key in SECTIONS else ""
        lines.append((f"{key}=...", meaning + listed))
    return lines


def keys(words: list[str]) -> str:
    """Every key of the core whose name or meaning has all the words."""
    from rlzoo.recipe.elsewhere import meant
    from rlzoo.recipe.keys import KEYS

    here = meant(" ".join(words)) if words else ""
    key = here.partition("=")[0]
    words = [key] if key in KEYS or f"{key}.name" in KEYS else words
    lines = [
        (key, f"{option.meaning}; {option.type_text}".removeprefix("; "))
        for key, option in KEYS.items()
        if all(word.lower() in f"{key} {option.meaning}".lower() for word in words)
    ]
    if not lines:
        last = [part for key in KEYS for part in key.split(".")]
        hint = f"; did you mean {here!r}?" if here else nearest(words[0], last)
        parts = words[0].split(".")  # rewards.NAME.option, estimator.option
        component = [parts[-2] if len(parts) > 2 else parts[-1], *words[1:]]
        search = f"`rlzoo plugins {' '.join(component)}` searches components and their options"
        raise RlzooError(f"no key of the core mentions {' '.join(words)!r}{hint}; {search}")
    foot = "For the options of a component, see `rlzoo plugins gae`; then set estimator.lam=0.9."
    head = [fold(f"called {here} in rlzoo:")] if here else []
    return "\n\n".join([*head, columns(lines), fold(foot)])


def fold(text: str, indent: str = "") -> str:
    return textwrap.fill(
        text, width(), initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False
    )


def columns(lines: Lines, *, one_line: bool = False) -> str:
    """Two columns; in a narrow terminal, the second is below the first. one_line: the second is
    cut at the width of a terminal, and not folded."""
    left = max(len(command) for command, _ in lines) + 4
    below = width() - left < 34
    out = []
    for command, text in lines:
        first = f"  {command}".ljust(left)
        if one_line:
            text = f"{first}{text}"
            cut = sys.stdout.isatty() and len(text) > width()
            out.append(f"{text[: width() - 1]}…" if cut else text)
        elif below:
            out += [fold(command, "  "), fold(text, "      ")]
        else:
            out.append(fold(text, " " * left).replace(" " * left, first, 1) or first)
    return "\n".join(line.rstrip() for line in out)
