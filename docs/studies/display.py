"""Draw what a terminal shows of the README's first command into docs/display.svg.

    python docs/studies/display.py      a minute or two: it trains

The command runs in a terminal of its own, 80 columns wide. The picture is the screen as it was at
half of the steps, and what was there at the end.
"""

import fcntl
import os
import pty
import re
import shlex
import struct
import subprocess
import sys
import tempfile
import termios
from io import StringIO
from resource import RUSAGE_CHILDREN, getrusage

from rich.console import Console
from rich.text import Text

from common import DOCS, ROOT

COLUMNS, ROWS = 80, 60
PARTS = re.compile(r"\x1b\[(\??\d*(?:;\d+)*)([A-Za-z])|\r|\n|[^\x1b\r\n]+")


class Screen:
    """As much of a terminal as rich writes for: lines, up, erase, colours."""

    def __init__(self) -> None:
        self.lines, self.at = [""], 0

    def feed(self, text: str) -> None:
        for match in PARTS.finditer(text):
            number, letter = match[1], match[2]
            if letter == "A":
                self.at = max(0, self.at - int(number or 1))
            elif letter == "K":
                self.lines[self.at] = ""
            elif match[0] == "\n":
                self.at += 1
                self.lines += [""] * (self.at + 1 - len(self.lines))
            elif letter == "m" or (letter is None and match[0] != "\r"):
                self.lines[self.at] += match[0]

    def text(self) -> str:
        return "\n".join(self.lines).strip("\n")


def shown(words: list[str], folder: str) -> tuple[str, str]:
    """The screen at half of the steps, and at the end."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    environment = {**os.environ, "TERM": "xterm-256color", "COLORTERM": "truecolor"}
    environment.pop("NO_COLOR", None)
    process = subprocess.Popen(
        [sys.executable, "-m", "rlzoo", *words], cwd=folder, env=environment,
        stdin=theirs, stdout=theirs, stderr=theirs,
    )  # fmt: skip
    os.close(theirs)
    screen, half = Screen(), ""
    while True:
        try:
            data = os.read(ours, 1 << 16)
        except OSError:  # the other end was closed
            break
        if not data:
            break
        screen.feed(data.decode("utf-8", "ignore"))
        if re.search(r"\b5\d%", screen.text()) and "╰" in screen.text():
            half = half or screen.text()
    if process.wait():
        sys.exit(screen.text())
    return half, screen.text()


def main() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    command = next(line for line in readme.splitlines() if "rlzoo run " in line)
    words = shlex.split(command.partition("rlzoo run ")[2])
    with tempfile.TemporaryDirectory() as folder:
        half, end = shown(["run", *words], folder)
    console = Console(record=True, width=COLUMNS, file=StringIO(), color_system="256")
    console.print(Text(f"$ rlzoo run {' '.join(words)}\n", style="bold"))
    before, _, panel = half.partition("╭")
    for part in ("╭" + panel, end.removeprefix(before).strip("\n")):
        console.print(Text.from_ansi(part + "\n"))
    drawn = console.export_svg(title="rlzoo")
    drawn = re.sub(r"@font-face \{.*?\}\s*", "", drawn, flags=re.DOTALL)  # they are on the network
    path = DOCS / "display.svg"
    path.write_text(drawn, encoding="utf-8")
    used = getrusage(RUSAGE_CHILDREN)
    seconds = used.ru_utime + used.ru_stime
    print(f"{path}: {path.stat().st_size / 1000:.0f} kB; the command took {seconds:.0f} CPU s")


if __name__ == "__main__":
    main()
