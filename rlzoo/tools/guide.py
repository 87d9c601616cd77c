"""What the command line says of itself: how to begin, examples of each verb, the keys of recipes.

No torch, no rich: `rlzoo --help` is quick.
"""

import shutil
import textwrap
from collections.abc import Mapping

from rlzoo.errors import RlzooError, nearest
from rlzoo.plugin.component import KINDS

Lines = list[tuple[str, str]]  # what to type, and what it does

FIRST: Lines = [
    ("rlzoo run ppo_gae model=speller task=spelling lam=.8", "train by PPO: half a minute"),
    ("rlzoo run grpo seed=1 train.steps=30", "another method; key=value sets anything"),
    ("rlzoo recipes", "the methods there are, a line each; `rlzoo plugins` their parts"),
    ("rlzoo doctor RUN", "what is wrong with a run, in words"),
    ("rlzoo sweep ppo_gae lam=0,.8,1 seed=0,1,2", "several runs, paired by seed, a verdict"),
    ("rlzoo new estimator my_estimator", "a plugin of your own, with its tests"),
]

EXAMPLES: dict[str, Lines] = {
    "run": [
        ("rlzoo run ppo_gae", "the recipe ppo_gae as it is"),
        ("rlzoo run grpo task=reverse_dense seed=1", "another task, another seed"),
        ("rlzoo run ppo_gae estimator=rloo", "only the estimator changed"),
        ("rlzoo run ppo_gae model.path=DIR", "a transformers model of your own"),
        ("rlzoo run runs/a/recipe.yaml run.dir=runs/b", "a run again"),
        ("rlzoo run grpo --store s3://bucket/a", "kept at a URL, too"),
    ],
    "sweep": [
        ("rlzoo sweep ppo_gae lam=0,.8,1 seed=0,1,2,3,4", "three rows, five seeds each"),
        ("rlzoo sweep ppo_gae estimator=gae,rloo seed=0..9", "two estimators, ten seeds"),
        ("rlzoo sweep recipe=ppo_gae,grpo seed=0,1,2", "two methods"),
    ],
    "resume": [
        ("rlzoo resume runs/a", "from its last checkpoint to its end"),
        ("rlzoo resume s3://bucket/a", "on another machine"),
    ],
    "plugins": [
        ("rlzoo plugins", "all, by kind"),
        ("rlzoo plugins estimators", "one kind"),
        ("rlzoo plugins gae", "those that speak of gae, with needs, options and source"),
    ],
    "recipes": [("rlzoo recipes", "all"), ("rlzoo recipes critic", "those that speak of a critic")],
    "show": [
        ("rlzoo show ppo_gae lam=.9", "every value, and where it came from"),
        ("rlzoo show ppo_gae --changed", "only what is not a default"),
    ],
    "check": [("rlzoo check gae", "hold a component to its contract")],
    "new": [("rlzoo new estimator my_estimator", "a package with a function and its test")],
    "compare": [
        ("rlzoo compare runs/a runs/b", "two runs"),
        ("rlzoo compare runs/sweep-x", "rows"),
    ],
    "diagnose": [
        ("rlzoo diagnose ppo_gae estimator=gae,mc,td0,rloo", "in a small exact world"),
        ("rlzoo diagnose runs/a", "on a batch that a run saved"),
    ],
    "advise": [("rlzoo advise ppo_gae train.steps=60", "a pilot of six steps")],
    "trace": [
        ("rlzoo trace --rewards 0,0,1 --values .3,.4,.6 --lam .95", "typed numbers"),
        ("rlzoo trace runs/a --row 3 --html a.html", "a response of a run, as a page"),
    ],
    "doctor": [("rlzoo doctor runs/a", "finished or not")],
    "report": [
        ("rlzoo report runs/a", "a page in the run's folder"),
        ("rlzoo report runs/a --watch", "again and again, while it runs"),
    ],
    "eval": [
        ("rlzoo eval runs/a --k 1,4", "accuracy, pass@4, samples"),
        ("rlzoo eval model=tiny task=addition", "a model that nobody trained"),
    ],
    "export": [("rlzoo export runs/a my-model", "a folder for transformers, with its card")],
    "bench": [("rlzoo bench", "all cases"), ("rlzoo bench step --recipes grpo", "one")],
    "sft": [("rlzoo sft pairs.jsonl --model nano --out start", "a model to start from")],
    "reward": [
        ("rlzoo reward train prefs.jsonl --model start --out rm", "from preferences"),
        ("rlzoo reward train steps.jsonl --per-step --model start --out prm", "from judged steps"),
    ],
    "base": [
        ("rlzoo base addition --out start", "a model that is right now and then, to start from")
    ],
}

KEYS_PEOPLE_SET = ("model", "task", "estimator", "seed", "train.steps", "rollout.prompts",
                   "rollout.samples", "actor.lr", "kl.coef", "run.dir")  # fmt: skip

WHERE_THE_REST = (
    "lam=.9 is short for estimator.lam=.9 where no other key ends so; --seed 1 is read as seed=1. "
    "All other keys: `rlzoo help keys [WORD]`; with their values in a recipe: `rlzoo show NAME`; "
    "in full: docs/recipes.md."
)


def width() -> int:
    return min(shutil.get_terminal_size().columns, 100)


def start() -> str:
    """What `rlzoo` alone shows."""
    head = "rlzoo: token-level RL algorithms for language models, every one a plugin. Try first:"
    foot = "rlzoo help: all verbs; rlzoo help run: one of them; docs/tutorial.md: half an hour."
    return "\n\n".join([fold(head), _beside(FIRST), fold(foot)])


def table(verbs: Mapping[str, tuple[str, ...]]) -> str:
    """What `rlzoo help` shows: every verb."""
    head = "usage: rlzoo VERB ..., rlzoo help VERB, rlzoo help keys [WORD], rlzoo --version"
    return "\n\n".join([fold(head), _beside([(n, text) for n, (_, text) in verbs.items()])])


def epilog(verb: str, said: str, takes_keys: bool) -> str:
    """What follows the options in a verb's help: examples, and of a recipe's keys the commonest."""
    parts = [fold(said)] if said else []
    if verb in EXAMPLES:
        parts.append("examples:\n" + _beside(EXAMPLES[verb]))
    if takes_keys:
        parts += ["keys people set:\n" + _beside(_common()), fold(WHERE_THE_REST)]
    return "\n\n".join(parts)


def usage(said: str) -> str:
    """A usage folded as argparse shows it, after `usage: `."""
    return textwrap.fill(
        " ".join(said.split()), width(), initial_indent=" " * 7, subsequent_indent=" " * 9
    ).lstrip()


def _common() -> Lines:
    """The commonest keys, each with what it means."""
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
    """Every key of the core whose name or meaning has all the words."""
    from rlzoo.recipe.keys import KEYS

    lines = [
        (key, f"{option.meaning}; {option.type_text}".removeprefix("; "))
        for key, option in KEYS.items()
        if all(word in f"{key} {option.meaning}".lower() for word in map(str.lower, words))
    ]
    if not lines:
        last = [part for key in KEYS for part in key.split(".")]
        raise RlzooError(f"no key speaks of {' '.join(words)!r}{nearest(words[0], last)}")
    foot = "Options of a component stand beside it: `rlzoo plugins gae`, then estimator.lam=.9."
    return "\n\n".join([_beside(lines), fold(foot)])


def fold(text: str) -> str:
    return textwrap.fill(text, width(), break_on_hyphens=False)


def _beside(lines: Lines) -> str:
    """Two columns; where the terminal is narrow, the second stands below the first."""
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
