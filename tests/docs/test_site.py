"""The docs as a site: every page has a place in mkdocs.yml and is soon found, and nothing that a
link needs stays behind."""

import re
from importlib import import_module

import yaml

from helpers import ROOT
from helpers.scripts import script

DOCS = ROOT / "docs"
PAGES = {path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")}
MADE = {
    "api.md",
    "contributing.md",
    "changelog.md",
    *(f"{path.stem}.md" for path in DOCS.glob("*.ipynb")),
}
CODE = re.compile(r"^```.*?^```$|`[^`\n]*`", re.MULTILINE | re.DOTALL)


class Loader(yaml.SafeLoader):
    """mkdocs.yml may name functions."""


Loader.add_multi_constructor("tag:yaml.org,2002:python/", lambda loader, tag, node: tag)
SITE = yaml.load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"), Loader)


def pages_of(nav):
    for entry in nav:
        for value in entry.values() if isinstance(entry, dict) else [entry]:
            yield from [value] if isinstance(value, str) else pages_of(value)


def test_every_page_has_one_place_in_the_navigation():
    named = list(pages_of(SITE["nav"]))
    assert sorted(named) == sorted(set(named))
    by_hand = {page for page in PAGES if not re.match(r"components/\w+/", page)}
    assert set(named) == by_hand | MADE, "mkdocs.yml's nav and docs/ differ"


def links(page):
    """The pages of docs/ that a page leads to."""
    text = CODE.sub("", (DOCS / page).read_text(encoding="utf-8"))
    found = re.findall(r"\]\(([^)\s:#]+\.md)(?:#[^)]*)?\)", text)
    paths = [(DOCS / page).parent.joinpath(target).resolve() for target in found]
    return {p.relative_to(DOCS).as_posix() for p in paths if p.is_relative_to(DOCS)} & PAGES


def test_every_page_is_three_clicks_from_the_front_page_at_most():
    seen, edge, clicks = {"README.md"}, {"README.md"}, 0
    while edge:
        edge = set().union(*map(links, edge)) - seen
        seen |= edge
        clicks += bool(edge)
    assert PAGES - seen == set()
    assert clicks <= 3


def test_the_site_asks_nothing_of_the_network():
    assert SITE["theme"]["font"] is False
    assert SITE["extra"]["polyfills"] == ["assets/iframe-worker.js"]  # else one from a CDN
    own = [*SITE.get("extra_css", ()), *SITE.get("extra_javascript", ())]
    assert [name for name in own if not (DOCS / name).is_file()] == []
    pictures = re.compile(r"!\[[^]]*\]\(http|<(?:img|script)[^>]*=\"?http")
    assert [p for p in PAGES if pictures.search((DOCS / p).read_text(encoding="utf-8"))] == []


def test_the_picture_is_of_the_readmes_command():
    """`python docs/studies/display.py` draws it anew."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    command = next(line for line in readme.splitlines() if "rlzoo run " in line)
    drawn = (DOCS / "display.svg").read_text(encoding="utf-8")
    seen = " ".join(re.sub(r"<[^>]+>", "", drawn.replace("&#160;", " ")).split())
    assert command[command.index("rlzoo run ") :] in seen
    assert "(docs/display.svg)" in readme
    assert len(drawn.encode()) <= 60_000
    assert "url(http" not in drawn


def test_no_page_imports_from_inside():
    """A page may import what a package shows of itself, not what stands in its modules."""
    inside = []
    for page in PAGES:
        text = (DOCS / page).read_text(encoding="utf-8")
        for code in re.findall(r"^```python.*?^```$", text, re.MULTILINE | re.DOTALL):
            for module, names in re.findall(r"^ *from (rlzoo[\w.]*) import ([\w, ]+)", code, re.M):
                place = import_module(module)
                shown = getattr(place, "__all__", None)
                wanted = {name.strip() for name in names.split(",")} - {
                    "checks",
                    "data",
                }  # packages
                deep = module.count(".") > 1 and not hasattr(place, "__path__")
                if deep or (shown is not None and not wanted <= set(shown)):
                    inside.append(f"{page}: from {module} import {names}")
    assert inside == []


def test_links_out_of_the_docs_turn_inwards():
    hooks, wanted = script("site_hooks"), {}
    text = "[a](../rlzoo/ops.py) [b](../rlzoo/lm) `[c](../rlzoo)` [d](design.md#what-did-not-work) [e](http://x.y/z)"
    turned = hooks.linked(text, "design.md", wanted)
    assert turned == (
        "[a](source/rlzoo/ops.py.txt) [b](source/rlzoo/lm/__init__.py.txt) `[c](../rlzoo)` "
        "[d](design.md#what-did-not-work) [e](http://x.y/z)"
    )
    assert wanted["source/rlzoo/ops.py.txt"] == ROOT / "rlzoo" / "ops.py"
    assert hooks.linked("[a](docs/design.md#x)", "contributing.md", {}) == "[a](design.md#x)"
    over_lines = "no `f(\n  x)` ([a](docs/design.md#x)). `b`"  # code that goes over a line's end
    assert hooks.linked(over_lines, "contributing.md", {}) == over_lines.replace("docs/", "")
    assert hooks.linked("[a](half.ipynb)", "log.md", {}) == "[a](half.md)"
    assert hooks.linked("[a](docs/half.ipynb)", "changelog.md", {}) == "[a](half.md)"
    assert hooks.linked("[a](../CONTRIBUTING.md)", "log.md", {}) == "[a](contributing.md)"
    turned = hooks.linked("[a](../../rlzoo/ops.py)", "components/README.md", wanted)
    assert turned == "[a](../source/rlzoo/ops.py.txt)"


def test_a_notebook_is_a_page():
    outputs = [{"data": {"text/html": ["<p>a</p>\n", "\n<p>b</p>"], "text/plain": ["c"]}},
               {"data": {"text/plain": ["d"]}}, {"text": ["e\n"]}]  # fmt: skip
    cells = [{"cell_type": "markdown", "source": ["# Head"]},
             {"cell_type": "code", "source": ["x = 1"], "outputs": outputs}]  # fmt: skip
    page = script("site_hooks").notebook({"cells": cells})
    assert page.split("\n\n") == [
        "# Head", "```python\nx = 1\n```", '<div class="output"><p>a</p>\n<p>b</p></div>',
        "```text\nd\n```", "```text\ne\n```\n",
    ]  # fmt: skip


def test_a_moved_page_leads_to_its_heir():
    pages = dict(script("site_hooks").moved((DOCS / "README.md").read_text(encoding="utf-8")))
    assert len(pages) > 25
    assert {"showcase", "loop-map", "metrics", "gallery"} <= set(pages)
    assert PAGES.isdisjoint(f"{name}.md" for name in pages)
    heirs = [re.search(r"url=([\w/-]+)\.html", text)[1] for text in pages.values()]
    known = {"playground", *(page.removesuffix(".md").replace("README", "index") for page in PAGES)}
    assert set(heirs) <= known
