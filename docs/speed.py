"""Write what `rlzoo bench` measured into the tables of docs/speed.md.

    rlzoo bench --model small,medium ... --out runs/speed.json --plot docs/speed.svg
    python docs/speed.py runs/speed.json

Several files are joined: a part and model that comes again replaces the earlier one.
"""

import json
import sys
from pathlib import Path

from common import with_block
from rlzoo_lab.bench.tables import markdown, sections

PAGE = Path(__file__).resolve().parent / "speed.md"


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


def phases(rows: list[dict]) -> str:
    """Where the CPU time of each step goes, in percent."""
    lines = ["| case | by | CPU s | of it, in percent |", "| --- | --- | --- | --- |"]
    for row in rows:
        if "phases" not in row:
            continue
        parts = row["phases"]
        named = {**parts, "the rest": row["cpu_seconds"] - sum(parts.values())}
        shares = {name: 100 * t / row["cpu_seconds"] for name, t in named.items()}
        text = ", ".join(f"{name} {share:.0f}" for name, share in shares.items() if share >= 0.5)
        by = f"{row['by']}, {row['rows']} rows" if "rows" in row else row["by"]
        lines.append(f"| {row['case']} | {by} | {row['cpu_seconds']:.3g} | {text} |")
    return "\n".join(lines)


def made(document: dict) -> dict[str, str]:
    """What stands between the markers: name -> text."""
    by_part: dict[str, list[str]] = {}
    out = {}
    for title, rows in sections(document):
        part, model = rows[0]["part"], rows[0].get("model")
        by_part.setdefault(part, []).append(f"{title.capitalize()}:\n\n{markdown(rows)}")
        if part == "step":
            out[f"phases {model}"] = phases(rows)
    machine = document["machine"]
    versions = next((r["versions"] for r in document["rows"] if "versions" in r), {})
    text = f"{machine['cpu']}, {machine['cores']} cores, {document['threads']} thread used; "
    text += ", ".join(f"{name} {version}" for name, version in versions.items())
    return {"machine": f"{text}.", **{k: "\n\n".join(v) for k, v in by_part.items()}, **out}


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
