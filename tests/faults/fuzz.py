"""Fuzzers: recipes of random values, and run folders whose files are damaged.

A message of one line is an answer; a traceback, a crash, silence for 20 s or accepted nonsense is
not. Nonsense: a number that is not finite or wider than 64 bits, or a recipe that, written down and
read again, is another.
"""

import json
import math
import os
import random
import shutil
import signal
from collections import Counter
from functools import partial
from pathlib import Path

from faults.harness import fork, rlzoo

BATCH, PATIENCE = 100, 60  # trials of a child; seconds for one

WORDS = [
    "", "null", "None", "true", "false", "yes", "0", "1", "-1", "2", "0.5", "-0.5", "1e9", "1e-9",
    "1e400", "-1e400", ".inf", "-.inf", ".nan", "inf", "nan", "NaN", "1e308", "9" * 25,
    "1:30", "0x10", "0o17", "1_000", "1,2", "[1]", "[]", "{}", "{a: 1}", "[1,2,3]", "[.nan,.inf]",
    "???", "${seed}", "${nothing}", "${seed", "${oc.env:HOME}", "~", "''", "' '", "\x00", "\u2028",
    "\ud800", "é", "名前", "a b", "a/b", "../x", "/", ".", "gae", "gea", "grpo", "nano", "auto",
    "python", "name", "x" * 5000, "[" * 200, "{a: " * 50, "!!python/object:os.system", "&a [*a]",
    "- 1", "a: b", "#", "|", ">", "%", "@", "`", "1.", ".5", "+1", "1e", "0b2", "2026-01-01",
]  # fmt: skip
YAML = [
    *WORDS[:-20],
    "\n  - 1\n  - 2",
    "\n  a: 1",
    "\n  name: gae",
    "\n  name: [gae]",
    "\n  ? [1]\n  : 2",
]


def recipes(place, trials, seed):
    """(what became of the trials, faults): random values for the keys of recipes, on the command
    line and in files."""
    place.mkdir(parents=True)
    counts, faults, first = Counter(), [], 0
    while first < trials:
        told = place / "told"
        last = min(trials, first + BATCH)
        trial = fork(partial(_batch, place, range(first, last), seed, told), place, 6000)
        lines = [json.loads(line) for line in told.read_text().split("\n") if line]
        told.unlink()
        for what, words, text in lines:
            counts[what] += 1
            if what == "wrong":
                faults.append(f"{words}: {text}")
        first += len(lines)
        if trial.status:  # at the trial after the last that was told
            faults.append(f"seed {seed}, trial {first}: the process ended by {trial.status}: "
                          f"{trial.said[-200:]}")  # fmt: skip
            counts["wrong"] += 1
            first += 1
    return dict(counts), faults


def _batch(place, numbers, seed, told):
    from helpers.zoo import ZOO

    keys = known_keys(ZOO)

    def late(*_):
        raise TimeoutError(f"no answer in {PATIENCE} s")

    signal.signal(signal.SIGALRM, late)
    with open(told, "w") as file:
        for number in numbers:
            words = drawn(random.Random(f"{seed} {number}"), keys, place)
            signal.alarm(PATIENCE)
            what, text = judged(words, ZOO)
            signal.alarm(0)
            file.write(json.dumps([what, repr(words), text]) + "\n")
            file.flush()
    return 0


def known_keys(zoo):
    """Every key of a recipe: the core's, and each component's options with what chooses it."""
    from rlzoo.recipe.compose import NO_FILE
    from rlzoo.recipe.keys import COLLECTIONS, KEYS, SECTIONS

    # What counts on the command line alone is not what a file holds.
    keys = [([], key) for key in KEYS if key not in NO_FILE]
    for section, kind in SECTIONS.items():
        for name, component in getattr(zoo, kind).items():
            keys += [([f"{section}={name}"], f"{section}.{o}") for o in component.options]
    for section, kind in COLLECTIONS.items():
        for name, component in getattr(zoo, kind).items():
            options = [*component.options, *["weight"] * (section == "rewards")]
            keys += [([f"{section}=[{name}]"], f"{section}.{name}.{o}") for o in options]
    return keys


def drawn(draw, keys, place):
    """The words of a trial."""
    recipe = draw.choice(["ppo_gae", "grpo", "rloo", "dapo"])
    chosen = draw.choices(keys, k=draw.choice([1, 1, 1, 2, 3]))
    if draw.random() < 0.75:
        words = [w for before, key in chosen for w in (*before, f"{key}={draw.choice(WORDS)}")]
        return [f"recipe={recipe}", *words]
    file = place / "fuzzed.yaml"
    lines = [f"{key}: {draw.choice(YAML)}" for _, key in chosen]
    if draw.random() < 0.3:  # nested
        section, _, rest = chosen[0][1].partition(".")
        lines = [f"{section}:", f"  {rest or 'name'}: {draw.choice(WORDS)}"]
    text = "\n".join(["# a fuzzed recipe", *lines]).encode(errors="surrogatepass")
    if draw.random() < 0.2:
        at = draw.randrange(len(text))
        text = text[:at] + bytes([draw.randrange(256)]) + text[at + 1 :]
    file.write_bytes(text)
    return [f"recipe={file}", *(w for before, _ in chosen for w in before)]


def judged(words, zoo):
    """("accepted" | "refused" | "wrong", what was said)."""
    from rlzoo.errors import RlzooError
    from rlzoo.recipe.compose import compose
    from rlzoo.train.start import prepare

    try:
        recipe = compose(words, zoo)
        prepare(recipe, zoo)
    except RlzooError as error:
        said = str(error)
        good = said.strip() and "\n" not in said and len(said) < 6000
        return ("refused" if good else "wrong"), said[:300]
    except (KeyboardInterrupt, MemoryError):
        raise
    except BaseException as error:
        return "wrong", f"{type(error).__name__}: {str(error)[:200]}"
    return nonsense(recipe, zoo)


def nonsense(recipe, zoo):
    from omegaconf import OmegaConf

    from rlzoo.errors import RlzooError
    from rlzoo.recipe.compose import compose

    for key, value in flat(OmegaConf.to_container(recipe.config)):
        if isinstance(value, float) and not math.isfinite(value):
            return "wrong", f"accepted: {key} = {value}"
        if isinstance(value, int) and abs(value) >= 2**63:
            return "wrong", f"accepted: {key} = {value}"
    file = Path("recipe.yaml")
    try:
        file.write_text(recipe.to_yaml(), encoding="utf-8")
        again = compose([f"recipe={file}"], zoo)
    except (RlzooError, UnicodeError) as error:
        return "wrong", f"accepted, and not readable again: {str(error)[:200]}"
    if again.config != recipe.config:
        return "wrong", "accepted, and another when it is read again"
    return "accepted", ""


def flat(tree, prefix=""):
    if isinstance(tree, dict):
        for key, value in tree.items():
            yield from flat(value, f"{prefix}{key}.")
    elif isinstance(tree, list):
        for value in tree:
            yield from flat(value, prefix)
    else:
        yield prefix[:-1], tree


# ---------------------------------------------------------------- folders

READERS = (["doctor", "run"], ["compare", "run"], ["model", "export", "run", "out"],
           ["resume", "run"],
           ["eval", "run", "--samples", "4"], ["resume", "run"], ["resume", "run"])  # fmt: skip


def folders(place, trials, seed):
    """(what became of the trials, faults): a file of a run's folder damaged, then read."""
    from faults import kills
    from helpers.micro import make_model

    place.mkdir(parents=True)
    model = make_model(place / "model")
    words = ["run", "recipe=ppo_gae", *kills.small(model), "checkpoint.every=1", "run.dir=run"]
    for name in ("done", "cut"):
        (place / name).mkdir()
        assert rlzoo(words, place / name).status == 0
    (place / "cut" / "run" / "summary.json").unlink()
    shutil.rmtree(place / "cut" / "run" / "checkpoints" / "step-00000003")
    counts, faults = Counter(), []
    for number in range(trials):
        draw = random.Random(f"{seed} {number}")
        verb = draw.choice(READERS)
        trial = place / "trial"
        shutil.copytree(place / ("cut" if verb[0] == "resume" else "done"), trial)
        files = sorted(p for p in (trial / "run").rglob("*") if p.is_file())
        told = damage(draw.choice(files), draw)
        end = rlzoo(verb, trial, limit=1200)
        lines = [line for line in end.said.splitlines() if line.startswith("rlzoo: ")]
        good = end.status == 0 or (end.status in (1, 2) and len(lines) >= 1)
        what = (
            "wrong"
            if "Traceback" in end.said or not good
            else "done"
            if end.status == 0
            else "refused"
        )
        counts[what] += 1
        if what == "wrong":
            faults.append(f"{' '.join(verb)}, {told}: exit {end.status}: {end.said.strip()[-250:]}")
        shutil.rmtree(trial)
    return dict(counts), faults


def damage(file, draw):
    """Do something to a file; what it was."""
    data = file.read_bytes() or b"\n"
    at = draw.randrange(len(data))
    kinds = {
        "cut": data[:at],
        "emptied": b"",
        "a bit flipped": data[:at] + bytes([data[at] ^ 1 << draw.randrange(8)]) + data[at + 1 :]
        if data
        else b"",
        "zeroed from there": data[:at] + bytes(len(data) - at),
        "noise": draw.randbytes(len(data)),
        "another type": draw.choice([b"[]", b"null", b"3", b'"x"', b"{}", b"[" * 3000]),
        "a line twice": b"".join(line * draw.choice((1, 1, 2)) for line in data.splitlines(True)),
        "a line gone": b"".join(line for line in data.splitlines(True) if draw.random() > 0.2),
        "deleted": None,
    }
    kind = draw.choice(list(kinds))
    if kinds[kind] is None:
        os.unlink(file)
    else:
        file.write_bytes(kinds[kind])
    return f"{'/'.join(file.parts[-3:])} {kind}"
