"""Types the commands that README and the docs show, on a terminal and into a pipe.

    python tests/docs/transcript.py [--out FILE] [--columns 80,60,0] [--pages README,tutorial]

Each page in an empty folder with the files that it shows, from top to bottom, with small settings
in the place of long training; once for each width of a terminal and once into a pipe (0). Each
command must end with 0 and without a traceback, but for those that are said below to end otherwise;
no table may be cut by the edge of the terminal, and no escape sequence may reach the pipe. What is
left out is said at the end. The transcript, as a terminal shows it, is there to be looked at.
"""

import argparse
import fcntl
import json
import os
import pty
import re
import select
import shlex
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = {"README": ROOT / "README.md"}
PAGES = {p.stem: p for p in sorted((ROOT / "docs").glob("*.md"))} | PAGES

FIRST = ["", "help", "help run", "run --help", "help keys lr", "plugins gae", "recipes critic"]
WRONG = ["rnu", "run ppo_gea", "run ppo_gae --sede 1", "run ppo_gae lr=1", "run grpo lam=.9"]

STEPS = "train.steps=2 rollout.prompts=4 rollout.samples=4 eval.samples=8"
SMALL = {  # settings and options that take the place of the page's own
    "run": STEPS,
    "sweep": f"{STEPS} seed=0,1",
    "eval": "--prompts 8",
    "base": "--steps 20",
    "sft": "--epochs 1",
    "reward": "--epochs 1",
}
FEWER = {"--batches": "4"}  # where the page gives them
INSTEAD = {"train.tokens": "train.steps"}
LEAVE = {  # why a command is not typed
    r"--peer trl": "needs two environments with TRL",
    r" run .*model=qwen": "needs a model of the hub",
    r"s3://": "needs a bucket",
    r"recipe=mine.yaml": "the recipe is the reader's own",
}
ENDS = {  # commands that rightly end otherwise
    r"show .*task.answer=answer": 2,  # the page shows the message
    r"rlzoo base .*--steps 20": 1,  # so few steps teach it too little, and it says so
    r"--on ray:10": 2,  # no cluster there, and it says so
    r"--on slurm": 2,  # without the extra, or a Slurm: one line
}
SHELL = ("cat", "head", "mkdir", "sleep", "python -", "python docs/three_", "python docs/process_")


def lines(page):
    """The logical lines of a page's bash blocks: a here-document is one, with the line it feeds."""
    for block in re.findall(
        r"^```(?:bash|sh)\n(.*?)^```", page.read_text(encoding="utf-8"), re.S | re.M
    ):
        rest = block.replace("\\\n", " ").splitlines()
        while rest:
            line = rest.pop(0)
            if end := re.search(r"<<'(\w+)'", line):
                at = rest.index(end[1])
                line, rest = "\n".join([line, *rest[: at + 1]]), rest[at + 1 :]
            if line.strip():
                yield line


def made_small(words):
    """The command with little to do: its own settings of these keys and options give way."""
    verb, *rest = words
    added = shlex.split(SMALL.get(verb, ""))
    if verb == "run" and "--help" in rest:
        return words
    if verb == "eval" and "model=" not in " ".join(rest):
        added = [w for w in added if "=" not in w]
    for option, value in FEWER.items():
        if option in rest:
            added += [option, value]
    keys = {w.partition("=")[0] for w in added if "=" in w}
    options = {w for w in added if w.startswith("--")}
    kept = []
    for i, word in enumerate(rest):
        key = INSTEAD.get(word.partition("=")[0], word.partition("=")[0])
        if key not in keys and word not in options and (not i or rest[i - 1] not in options):
            kept.append(word)
    return [verb, *kept, *added]


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
    """The first line of a table that was cut in two by the edge: a border that does not close, or
    a head that lost letters."""
    above = ""
    for line in text.splitlines():
        if re.fullmatch(" ?─+", line) and "…" in above:
            return above
        above = line
        opens, closes = line[:1], line[-1:]
        if (opens in "┏╭" and closes not in "┓╮") or (opens in "└╰" and closes not in "┘╯"):
            return line
        if opens in "│┃" and closes not in "│┃":
            return line
    return None


def prepare(folder):
    """What the pages' commands find: a run with its batches, and some files of data."""
    os.chdir(folder)
    words = ["run", "recipe=ppo_gae", "run.dir=runs/a", "model=nano", "run.save_batches=1"]
    said, status = into_pipe([*words, *shlex.split(STEPS)])
    assert status == 0, said
    sums = [(f"{a}+{b}=", str(a + b), str(a + b + 1)) for a in range(9) for b in range(9)]
    for name, keys in (
        ("pairs", ("prompt", "response")),
        ("prefs", ("prompt", "chosen", "rejected")),
    ):
        rows = (json.dumps(dict(zip(keys, row, strict=False))) for row in sums)
        Path(f"{name}.jsonl").write_text("\n".join(rows) + "\n", encoding="utf-8")


class Session:
    """One page, typed from top to bottom in one place: a terminal of some width (0: a pipe)."""

    def __init__(self, columns, given):
        self.columns, self.given = columns, given
        self.place = f"{columns} columns" if columns else "pipe"
        self.faults, self.out, self.left, self.count = [], [], [], 0
        self.servers = []

    def page(self, path):
        before = dict(os.environ)
        try:
            for line in lines(path):
                self.line(line)
        finally:
            os.environ.clear()
            os.environ.update(before)
            for server in self.servers:
                server.send_signal(signal.SIGTERM)
                server.wait()
            self.servers.clear()

    def line(self, line):
        for why in (why for pattern, why in LEAVE.items() if re.search(pattern, line)):
            self.left.append(f"{line.strip()}: {why}")
            return
        words = [] if "<<" in line else shlex.split(line, comments=True)
        given = []
        while words and re.fullmatch(r"[A-Z_]+=.*", words[0], re.S):
            given.append(words.pop(0))
        if words[:1] == ["export"]:
            os.environ |= dict(w.split("=", 1) for w in words[1:])
        elif words[:1] == ["rlzoo"]:
            end = next((i for i, w in enumerate(words) if w in ("|", "||", ">")), len(words))
            os.environ |= dict(w.split("=", 1) for w in given)
            self.type(made_small(words[1:end]))
            for word in given:
                del os.environ[word.partition("=")[0]]
        elif words[:2] == ["torchrun", "--standalone"]:
            at = words.index("rlzoo") + 1
            ranks = [sys.executable, "-m", "torch.distributed.run", *words[1:at]]
            self.shell(line, [*ranks, *made_small(words[at:])])
        elif words[-1:] == ["&"]:
            self.servers.append(subprocess.Popen(words[: words.index("2>")]))
        elif line.startswith(SHELL):
            line = line.replace("python", sys.executable, 1)
            line = line.replace(" docs/", f" {ROOT}/docs/")
            self.shell(line, ["bash", "-c", line])
        elif words[:1] != ["trap"]:
            self.left.append(f"{line.strip()}: not a command of rlzoo")

    def shell(self, line, words):
        """A command that is none of rlzoo's: it is to end well, no more."""
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        if done.returncode:
            self.faults.append(f"$ {line.splitlines()[0]}: {done.stderr[-300:]}")

    def type(self, words):
        new = words.index("--dir") + 1 if "--dir" in words else 0
        for i, word in enumerate(words):
            taken = re.fullmatch(r"runs/[\w.-]+", word)  # a run that a page takes for granted
            if taken and i != new and not Path(word).exists():
                shutil.copytree(self.given / "runs" / "a", word)
            if word == "run.dir=runs/a":  # the page makes its own
                shutil.rmtree("runs/a", ignore_errors=True)
        line = f"$ rlzoo {shlex.join(words)}"
        began = time.monotonic()
        text, status = on_terminal(words, self.columns) if self.columns else into_pipe(words)
        took = time.monotonic() - began
        self.count += 1
        self.out.append(f"{line}    [{self.place}, exit {status}, {took:.1f} s]\n{text}\n")
        right = next((n for pattern, n in ENDS.items() if re.search(pattern, line)), 0)
        if "Traceback" in text or status not in (right, 1 if words[:1] == ["doctor"] else right):
            self.faults.append(f"{line} [{self.place}]: exit {status}: {text.strip()[-300:]}")
        if self.columns and (cut := broken_table(text)):
            self.faults.append(f"{line} [{self.place}]: a table is cut: {cut!r}")
        if not self.columns and "\x1b" in text:
            self.faults.append(f"{line} [{self.place}]: an escape sequence in a pipe")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path)
    parser.add_argument("--columns", default="80,60,0")
    parser.add_argument("--pages", default=",".join(PAGES))
    options = parser.parse_args()
    # Once, for all commands: a child is forked for each.
    import transformers.models.llama.modeling_llama  # noqa: F401

    import rlzoo

    rlzoo.load_zoo()
    top = Path(tempfile.mkdtemp())
    out, faults, left, count, began = [], [], [], 0, time.monotonic()
    try:
        given = top / "given"
        given.mkdir()
        prepare(given)
        for columns in map(int, options.columns.split(",")):
            session = Session(columns, given)
            os.chdir(given)
            for words in map(shlex.split, FIRST):
                session.type(words)
            ENDS.update({re.escape(f"$ rlzoo {line}") + "$": 2 for line in WRONG})
            for words in map(shlex.split, WRONG):
                session.type(words)
            for name in options.pages.split(","):
                place = top / f"{name}-{columns}"
                shutil.copytree(given, place)
                for path in (ROOT / "docs" / "examples").glob("*.py"):
                    shutil.copy(path, place)
                os.chdir(place)
                session.out.append(f"######## {name}\n")
                session.page(PAGES[name])
                if options.out:  # what there is so far, for whoever looks on
                    options.out.write_text("\n".join(out + session.out), encoding="utf-8")
            out += session.out
            faults += session.faults
            left = session.left
            count += session.count
    finally:
        os.chdir(ROOT)
        shutil.rmtree(top, ignore_errors=True)
    out.append(f"{count} commands, {time.monotonic() - began:.0f} s, {len(faults)} faults")
    if options.out:
        options.out.write_text("\n".join(out), encoding="utf-8")
    print("\n".join(["left out:", *left, "faults:", *faults, out[-1]]))
    return bool(faults)


if __name__ == "__main__":
    raise SystemExit(main())
