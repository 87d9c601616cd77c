"""What MkDocs needs beyond mkdocs.yml, so that the pages read well on a code host and as a site.

A link out of docs/ (`../rlzoo/ops.py`) leads to a copy of that file as plain text under source/, a
link to a folder to its `__init__.py` or README. CONTRIBUTING.md, CHANGELOG.md and the notebooks
become pages, and every component's page gets a place in the navigation.
"""

import json
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import rlzoo

if TYPE_CHECKING:
    from mkdocs.structure.files import Files

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
PAGES = {ROOT / "CONTRIBUTING.md": "contributing.md", ROOT / "CHANGELOG.md": "changelog.md"}
HOMES = {page: path for path, page in PAGES.items()}
CODE = r"^```.*?^```$|`[^`\n]*(?:\n[^`\n]+)*`"  # a span of code may go over the end of a line
CODE_OR_LINK = re.compile(CODE + r"|\]\(([^)\s:#]+)(#[^)\s]*)?\)", re.M | re.S)


def on_config(config: Any) -> Any:
    """Puts the pages of the components, kind by kind, below their index."""
    below: list[Any] = ["components/README.md"]
    for kind in sorted(path for path in (DOCS / "components").iterdir() if path.is_dir()):
        pages = sorted(path.relative_to(DOCS).as_posix() for path in kind.glob("*.md"))
        below.append({kind.name.replace("_", " ").replace("kl ", "KL "): pages})
    for part in config.nav:
        for pages in part.values() if isinstance(part, dict) else ():
            if below[0] in pages:
                pages[pages.index(below[0])] = {"Components": below}
    return config


def on_files(files: "Files", config: Any) -> "Files":
    from mkdocs.structure.files import File  # the rest is of use without mkdocs

    for path, page in PAGES.items():
        files.append(File.generated(config, page, content=path.read_text(encoding="utf-8")))
    files.append(File.generated(config, "api.md", content=reference()))
    for path in DOCS.glob("*.ipynb"):
        text = notebook(json.loads(path.read_text(encoding="utf-8")))
        files.append(File.generated(config, f"{path.stem}.md", content=text))
    play = (DOCS / "playground.html").read_text(encoding="utf-8")
    play = play.replace('href="README.md"', 'href="index.html"')  # what the front page is called
    files.append(File.generated(config, "playground.html", content=play))
    for old, heir in moved((DOCS / "README.md").read_text(encoding="utf-8")):
        files.append(File.generated(config, f"{old}.html", content=heir))
    wanted: dict[str, Path] = {}
    for file in files.documentation_pages():
        linked(file.content_string, file.src_uri, wanted)
    for uri, path in wanted.items():
        files.append(File.generated(config, uri, abs_src_path=str(path)))
    return files


def moved(index: str) -> list[tuple[str, str]]:
    """(old page, a page that leads to its heir), by the table of the index."""
    table = index.partition("## Moved pages")[2]
    rows = re.findall(r"^\|([a-z, -]+)\|.*?\]\(([^)]+)\)\|$", table, re.M)
    return [
        (name, f'<meta http-equiv="refresh" content="0; url={heir}"><a href="{heir}">moved</a>\n')
        for names, target in rows
        for heir in [
            target.replace("gallery/README.md", "gallery/index.md").replace(".md", ".html")
        ]
        for name in names.split(", ")
    ]


def reference() -> str:
    """A page of the public names; mkdocstrings writes each from its signature and docstring."""
    typed = (ROOT / "rlzoo" / "__init__.pyi").read_text(encoding="utf-8")  # none of other plugins
    names = sorted((n for n in rlzoo.__all__ if f" as {n}\n" in typed), key=str.lower)
    head = "# API reference\n\nThe public names of `rlzoo`; [Python](python.md) shows their use.\n"
    return head + "".join(f"\n::: rlzoo.{name}\n" for name in names)


def notebook(document: dict[str, Any]) -> str:
    """A notebook as a page: its cells, and what they gave."""
    parts = []
    for cell in document["cells"]:
        source = "".join(cell["source"])
        parts.append(source if cell["cell_type"] == "markdown" else f"```python\n{source}\n```")
        for output in cell.get("outputs", ()):
            data = {kind: "".join(text) for kind, text in output.get("data", {}).items()}
            if "text/html" in data:  # without empty lines it is one block of HTML, left as it is
                html = re.sub(r"\n\s*\n+", "\n", data["text/html"].strip())
                parts.append(f'<div class="output">{html}</div>')
            elif "image/png" in data:
                png = data["image/png"].replace("\n", "")
                parts.append(f'<img alt="what the cell draws" src="data:image/png;base64,{png}">')
            else:
                text = data.get("text/plain") or "".join(output.get("text", ()))
                parts.append(f"```text\n{text.strip()}\n```")
    return "\n\n".join(parts) + "\n"


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    titled = re.sub(r"^```(\w+) file=(\S+)$", r'```\1 title="\2"', markdown, flags=re.M)
    return linked(titled, page.file.src_uri, {})


def linked(markdown: str, uri: str, wanted: dict[str, Path]) -> str:
    """The page with its links out of docs/ turned inwards; `wanted` gets the files they need."""
    home = HOMES.get(uri, DOCS / uri).parent

    def inwards(match: re.Match[str]) -> str:
        target, anchor = match[1], match[2] or ""
        path = (home / target).resolve() if target else None
        inside = path is not None and path.is_relative_to(DOCS)
        if path is None or (inside and uri not in HOMES and path.suffix != ".ipynb"):
            return match[0]
        if path in PAGES:
            there = PAGES[path]
        elif inside:
            there = re.sub(r"\.ipynb$", ".md", path.relative_to(DOCS).as_posix())
        elif path.is_relative_to(ROOT):
            best = (path, path / "__init__.py", path / "README.md", *sorted(path.glob("*.*")))
            path = next((x for x in best if x.is_file()), path)
            there = f"source/{path.relative_to(ROOT).as_posix().lstrip('.')}.txt"
            wanted[there] = path
        else:
            return match[0]
        return f"]({os.path.relpath(there, os.path.dirname(uri) or '.')}{anchor})"

    return CODE_OR_LINK.sub(inwards, markdown)
