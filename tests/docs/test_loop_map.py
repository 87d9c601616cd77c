"""docs/bridges.md: the functions and methods that it names are there."""

import ast
import importlib.util
import re
from pathlib import Path

import pytest

from helpers import ROOT

PAGE = (ROOT / "docs" / "bridges.md").read_text(encoding="utf-8")
NAMED = sorted(set(re.findall(r"`([\w/]+\.py):([\w.]+)`", PAGE)))
OURS = [pair for pair in NAMED if pair[0].startswith(("rlzoo/", "plugins/"))]
THEIRS = [pair for pair in NAMED if pair not in OURS]


def names_in(path):
    """Its functions and classes, and `Class.method`."""
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, kinds):
            yield node.name
            inside = node.body if isinstance(node, ast.ClassDef) else ()
            yield from (f"{node.name}.{n.name}" for n in inside if isinstance(n, kinds))


def test_what_is_named_of_rlzoo_is_there():
    assert len(OURS) >= 25
    assert [pair for pair in OURS if pair[1] not in names_in(ROOT / pair[0])] == []


def test_what_is_named_of_verl_is_there():
    """Where verl 0.9.1 is installed, or lies on the path."""
    spec = importlib.util.find_spec("verl")
    if spec is None:
        pytest.skip("verl is not installed")
    verl = Path(spec.origin).parent
    if (verl / "version" / "version").read_text(encoding="utf-8").strip() != "0.9.1":
        pytest.skip("another version of verl")
    assert len(THEIRS) >= 20
    assert [pair for pair in THEIRS if pair[1] not in names_in(verl / pair[0])] == []


def test_every_step_of_the_loop_has_its_part():
    parts = re.findall(r"^\|\d+\. ([^|]+)\|([^|]+)\|([^|]+)\|$", PAGE, re.MULTILINE)
    assert [head for head, ours, theirs in parts if not (ours.strip() and theirs.strip())] == []
    asked = {"sampling", "reward", "kl", "critic", "advantage", "update", "validation", "save"}
    assert asked <= set(re.findall(r"\w+", " ".join(head.lower() for head, *_ in parts)))
