"""What the scripts of this folder share: a command's output, a table, parts of a docstring,
a place in a page."""

import json
import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from statistics import fmean
from typing import Any

from rlzoo.plugin.component import Component
from rlzoo.plugin.registry import Zoo
from rlzoo.recipe.compose import compose
from rlzoo.recipe.plan import Plan, make_plan
from rlzoo_lab.stats import t_interval

DOCS = Path(__file__).resolve().parents[1]
ROOT = DOCS.parent
PLANS: dict[tuple[str, int], Plan] = {}


def rlzoo(*words: str) -> str:
    """What `rlzoo WORDS` prints."""
    command = [sys.executable, "-m", "rlzoo", *words]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def plan_of(name: str, zoo: Zoo) -> Plan:
    """The plan of a shipped recipe; several pages use each."""
    if (name, id(zoo)) not in PLANS:
        PLANS[name, id(zoo)] = make_plan(compose([f"recipe={name}", "device=cpu"], zoo), zoo)
    return PLANS[name, id(zoo)]


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A table of Markdown without spaces around the bars: a count of words counts words."""
    head = list(head)
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"|{'|'.join(cells)}|" for cells in lines)


def plus_minus(values: list[float], digits: str = ".3f") -> str:
    """The mean and, of several values, half Student's 95 % interval."""
    spread = t_interval(values)
    half = f"±{(spread.high - spread.low) / 2:.3f}" if spread else ""
    return f"{fmean(values):{digits}}{half}"


def prose(text: str) -> str:
    """Text of a docstring: `<` would begin a tag; code spans are left as they are."""
    parts = re.split(r"(`[^`]*`)", text)
    return "".join(p if p.startswith("`") else p.replace("<", "\\<") for p in parts)


def parts_of(c: Component) -> tuple[str, str]:
    """The docstring's first paragraph, and the others without the source."""
    first, _, rest = c.doc.partition("\n\n")
    if not rest and "\nSource:" in first:
        first = first.partition("\nSource:")[0]
    rest = re.split(r"(?:^|\n)Source:", rest)[0]
    return first.strip(), " ".join(rest.split())


def recorded(file: Path) -> list[dict[str, Any]]:
    """The rows that a study has written down so far, one a line; its folder is made."""
    file.parent.mkdir(parents=True, exist_ok=True)
    text = file.read_text(encoding="utf-8") if file.exists() else ""
    return [json.loads(line) for line in text.splitlines()]


def with_block(text: str, name: str, block: str) -> str:
    """`text` with the part between `<!-- NAME -->` and `<!-- /NAME -->` replaced, if it has one."""
    begin, end = f"<!-- {name} -->", f"<!-- /{name} -->"
    if begin not in text or end not in text:
        return text
    before, _, rest = text.partition(begin)
    return f"{before}{begin}\n\n{block}\n\n{end}{rest.partition(end)[2]}"


def put(page: Path, name: str, block: str) -> None:
    """The same in a file, tables as `table` has them; a place that is not there is an error."""
    block = re.sub(r"(?<!\\) *\| *", "|", block) if block.lstrip().startswith("|") else block
    text = page.read_text(encoding="utf-8")
    if f"<!-- /{name} -->" not in text:
        sys.exit(f"{page.name} has no place named {name}")
    page.write_text(with_block(text, name, block), encoding="utf-8")
