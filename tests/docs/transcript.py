"""Types the commands of README's list and of the docs' first pages, on a terminal and into a pipe.

    python tests/docs/transcript.py [--out FILE] [--columns 80,60] [--pages README,tutorial]

In an empty folder, with small settings in the place of long training. Each command must end as it
should, without a traceback; no line on the terminal may be wider than it, and no escape sequence
may reach the pipe. The transcript, as a terminal shows it, is there to be looked at.
"""

import argparse
import fcntl
import os
import pty
import re
import select
import shlex
import shutil
import struct
import sys
import tempfile
import termios
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = {"README": ROOT / "README.md"} | {
    name: ROOT / "docs" / f"{name}.md"
    for name in ("tutorial", "recipes", "compare", "diagnose", "trace", "evaluate", "data")
}
FIRST = ["", "help", "help run", "run --help", "help keys lr", "plugins gae", "recipes critic"]
WRONG = ["rnu", "run ppo_gea", "run ppo_gae --sede 1", "run ppo_gae lr=1", "run grpo lam=.9"]

SMALL = {
    "run": "model=nano train.steps=2 rollout.prompts=4 rollout.samples=4 eval.samples=8",
    "sweep": "model=nano train.steps=2 rollout.prompts=4 rollout.samples=4 eval.samples=8 seed=0,1",
    "advise": "model=nano train.steps=20 rollout.prompts=4 eval.samples=8",
    "eval": "--prompts 8",
}
LEAVE = ("bench", "base", "sft", "reward")  # minutes each, and no view of their own


def commands(page):
    """Lines `rlzoo ...` of a page's bash blocks."""
    for block in re.findall(r"```bash\n(.*?)```", page.read_text(encoding="utf-8"), re.S):
        for line in block.replace("\\\n", " ").splitlines():
            words = shlex.split(line, comments=True)
            if words[:1] == ["rlzoo"] and words[1:2] and words[1] not in LEAVE:
                yield words[1:]


def made_small(words):
    """The command with little to do: its own settings of these keys give way."""
    verb, *rest = words
    added = shlex.split(SMALL.get(verb, ""))
    keys = {w.partition("=")[0] for w in added if "=" in w} | {"run.dir", "task", "model.path"}
    return [verb, *(w for w in rest if w.partition("=")[0] not in keys), *added]


def on_terminal(words, columns):
    """(what the screen shows, exit status) of a command on a pseudo-terminal."""
    process, terminal = pty.fork()
    if process == 0:
        fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
        work(words, TERM="xterm-256color")
    text = b""
    while True:
        select.select([terminal], [], [])
        try:
            more = os.read(terminal, 65536)
        except OSError:
            break
        text += more
    return screen(text.decode(errors="replace"), columns), ended(process)


def into_pipe(words):
    ours, theirs = os.pipe()
    process = os.fork()
    if process == 0:
        os.dup2(theirs, 1)
        os.dup2(theirs, 2)
        work(words)
    os.close(theirs)
    with os.fdopen(ours, "rb") as file:
        text = file.read().decode(errors="replace")
    return text, ended(process)


def work(words, **environment):
    """In the child: never returns."""
    for name in ("COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR"):
        os.environ.pop(name, None)
    os.environ |= environment
    sys.stdout, sys.stderr = (os.fdopen(n, "w", closefd=False) for n in (1, 2))
    from rlzoo.cli import main

    status = 70
    try:
        status = main(words)
    except SystemExit as left:
        status = left.code or 0
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def ended(process):
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])


SEQUENCE = re.compile(r"\x1b\[([\d;?]*)([A-Za-z])|\x1b\][^\x07]*\x07|(.)", re.S)


def screen(text, columns):
    """What a terminal that wide shows of a text, and all that has scrolled away."""
    lines, x, y = [[]], 0, 0
    for numbers, letter, char in SEQUENCE.findall(text):
        n = int(re.sub(r"\D", "", numbers) or 1)
        if letter == "A":
            y = max(0, y - n)
        elif letter == "K":
            del lines[y][0 if numbers == "2" else x :]
        elif char == "\n":
            y += 1
        elif char == "\r":
            x = 0
        elif char >= " ":
            if x == columns:
                x, y = 0, y + 1
            while len(lines) <= y:
                lines.append([])
            lines[y] += " " * (x + 1 - len(lines[y]))
            lines[y][x] = char
            x += 1
        while len(lines) <= y:
            lines.append([])
    return "\n".join("".join(line).rstrip() for line in lines)


def broken_table(text):
    """The first line of a table that was cut in two by the edge: a border that does not close."""
    for line in text.splitlines():
        opens, closes = line[:1], line[-1:]
        if (opens in "┏╭" and closes not in "┓╮") or (opens in "└╰" and closes not in "┘╯"):
            return line
        if opens in "│┃" and closes not in "│┃":
            return line
    return None


def prepare(folder):
    """What the pages' commands find: two runs, a sweep, some files."""
    os.chdir(folder)
    for name, seed in (("a", 0), ("b", 1)):
        words = ["run", "recipe=ppo_gae", f"seed={seed}", f"run.dir=runs/{name}",
                 "run.save_batches=1"]  # fmt: skip
        said, status = into_pipe([*words, *shlex.split(SMALL["run"])])
        assert status == 0, said


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path)
    parser.add_argument("--columns", default="80,60")
    parser.add_argument("--pages", default=",".join(PAGES))
    options = parser.parse_args()
    # Once, for all commands: a child is forked for each.
    import transformers.models.llama.modeling_llama  # noqa: F401

    import rlzoo

    rlzoo.load_zoo()
    typed = [shlex.split(line) for line in FIRST + WRONG]
    for name in options.pages.split(","):
        typed += [made_small(words) for words in commands(PAGES[name])]
    typed = [list(words) for words in dict.fromkeys(map(tuple, typed))]
    folder = Path(tempfile.mkdtemp())
    faults, out = [], []
    try:
        prepare(folder)
        began = time.monotonic()
        places = [(f"{n} columns", int(n)) for n in options.columns.split(",")] + [("pipe", 0)]
        for words in typed:
            known = [Path(w) for w in words[1:] if re.fullmatch(r"runs/[\w.-]+", w)]
            for path in known:
                if not path.exists():
                    shutil.copytree("runs/a", path)
            for place, columns in places:
                text, status = on_terminal(words, columns) if columns else into_pipe(words)
                line = f"$ rlzoo {shlex.join(words)}"
                out.append(f"{line}    [{place}, exit {status}]\n{text}\n")
                if "Traceback" in text or status not in (0, 1, 2):
                    faults.append(f"{line} [{place}]: {text.strip().splitlines()[-1:]}")
                if columns and (cut := broken_table(text)):
                    faults.append(f"{line} [{place}]: a table is cut: {cut!r}")
                if not columns and "\x1b" in text:
                    faults.append(f"{line} [{place}]: an escape sequence in a pipe")
        out.append(f"{len(typed)} commands, {time.monotonic() - began:.0f} s, {len(faults)} faults")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if options.out:
        options.out.write_text("\n".join(out), encoding="utf-8")
    print("\n".join([*faults, out[-1]]))
    return bool(faults)


if __name__ == "__main__":
    raise SystemExit(main())
