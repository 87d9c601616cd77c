"""Write what `python tests/benchmarks/bench` measured into the tables of docs/speed.md.

    python tests/benchmarks/bench --model small,medium ... --out runs/speed.json
    python docs/studies/speed.py runs/speed.json

Several files are joined: a part and model that comes again replaces the earlier one.
"""

import json
import sys
from pathlib import Path

from common import table, with_block

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "benchmarks"))
from bench.tables import markdown, sections

LEFT_OUT = ("tokens", "CPU s", "tok/s")
PAGE = Path(__file__).resolve().parents[1] / "speed.md"


def joined(files: list[str]) -> dict:
    """One document of several."""
    found: dict[tuple, list] = {}
    document: dict = {}
    for file in files:
        document = json.loads(Path(file).read_text(encoding="utf-8"))
        new: dict[tuple, list] = {}
        for row in document["rows"]:
            new.setdefault((row["part"], row.get("model")), []).append(row)
        found |= new
    return {**document, "rows": [row for rows in found.values() for row in rows]}


def narrow(text: str) -> str:
    """The tables without redundant columns and without the rows of an older checkout."""
    out, keep = [], None
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if not line.startswith("|"):
            keep = None
        elif keep is None:
            keep = [i for i, cell in enumerate(cells) if cell not in LEFT_OUT]
        if keep is None:
            out.append(line)
        elif cells[1] != "before":
            out.append("| " + " | ".join(cells[i] for i in keep) + " |")
    return "\n".join(out)


def side_by_side(text: str) -> str:
    """A line for each case of `narrow`'s steps: rlzoo's numbers, and TRL's ratios by batch size."""
    cases: dict[str, list[str]] = {}
    lines = text.splitlines()
    for line in [line for line in lines if line.startswith("|")][2:]:
        case, by, *numbers = [cell.strip() for cell in line.strip("|").split("|")]
        whole = case.partition(",")[0]
        cases[whole] = [*cases.get(whole, []), *(numbers[:2] if by == "rlzoo" else numbers[2:])]
    head = ["case", "tok/CPU s", "MB", "faster", "mem", "faster, few rows", "mem, few rows"]
    others = [line for line in lines if not line.startswith("|")]  # of cases that failed
    return "\n".join([table(head, [[case, *cells] for case, cells in cases.items()]), *others])


def made(document: dict) -> dict[str, str]:
    """The text between the markers: name -> text."""
    by_part: dict[str, list[str]] = {}
    for title, rows in sections(document):
        part = rows[0]["part"]
        text = markdown(rows)
        if part in ("step", "head"):
            text = narrow(text)
        if part == "step":
            text = side_by_side(text)
        lead = title.capitalize() + (" model" if rows[0].get("model") else "")
        by_part.setdefault(part, []).append(f"{lead}:\n\n{text}")
    machine = document["machine"]
    versions = next((r["versions"] for r in document["rows"] if "versions" in r), {})
    text = f"{machine['cpu']}, {machine['cores']} cores, {document['threads']} thread used; "
    text += ", ".join(f"{name} {version}" for name, version in versions.items())
    return {"machine": f"{text}.", **{k: "\n\n".join(v) for k, v in by_part.items()}}


def main(files: list[str]) -> None:
    text = PAGE.read_text(encoding="utf-8")
    for name, new in made(joined(files)).items():
        if f"<!-- {name} -->" not in text:
            print(f"{name}: no such place in {PAGE.name}")
            continue
        text = with_block(text, name, new)
        print(f"{name}: written")
    PAGE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
