"""No hidden state, no rank outside the engine, no local whose name says neither type nor unit."""

import ast
from pathlib import Path

import pytest

import rlzoo
import rlzoo_lab
import rlzoo_zoo

HOMES = [Path(package.__file__).parent for package in (rlzoo, rlzoo_zoo, rlzoo_lab)]
CORE = HOMES[0]
FILES = [path for home in HOMES for path in home.rglob("*.py")]
# A tensor's second identity, what a function reads without being given it, torch's own counter.
HIDDEN = {"_on_host", "ContextVar", "_version"}
RANKS = {"rank", "ranks"}
EMPTY = {"found", "said", "told", "held", "some", "here", "asked", "own"}
NAMED = ("accel", "env", "lm", "mdp", "rollout", "step", "train")  # packages without EMPTY locals
# (file, what): why it stands there.
ALLOWED = {
    ("loggers/optuna.py", "ContextVar"): "a live trial, which no recipe can hold",
    ("lm/lora.py", "add_lora"): "the rank of a matrix",
    ("api/preview.py", "adapters"): "the rank of a matrix",
}


def hidden(tree):
    """Names of HIDDEN that the code uses, assigns or imports."""
    for node in ast.walk(tree):
        names = {getattr(node, field, None) for field in ("id", "attr", "name")}
        yield from names & HIDDEN
        if isinstance(node, ast.Constant) and node.value in HIDDEN:  # getattr(x, "_on_host")
            yield node.value


def ranked(tree):
    """Functions that take a rank, and `.ranks` of an engine."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.Lambda):
            a = node.args
            if RANKS & {x.arg for x in [*a.posonlyargs, *a.args, *a.kwonlyargs]}:
                yield getattr(node, "name", "lambda")
        if isinstance(node, ast.Attribute) and node.attr == "ranks":
            yield ".ranks"


def empty(tree):
    """Names of EMPTY that code assigns, or takes as a parameter."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id in EMPTY:
            yield node.id
        if isinstance(node, ast.arg) and node.arg in EMPTY:
            yield node.arg


def uses(look, files):
    for path in files:
        home = next(home for home in HOMES if path.is_relative_to(home))
        for what in look(ast.parse(path.read_text(encoding="utf-8"))):
            yield path.relative_to(home).as_posix(), what


def test_nothing_is_hidden():
    assert set(uses(hidden, FILES)) - ALLOWED.keys() == set()


def test_only_the_engine_knows_ranks():
    outside = [path for path in FILES if CORE / "accel" not in path.parents]
    assert set(uses(ranked, outside)) - ALLOWED.keys() == set()


def test_locals_say_what_they_hold():
    files = [path for name in NAMED for path in (CORE / name).rglob("*.py")]
    assert set(uses(empty, files)) == set()


@pytest.mark.parametrize(
    ("look", "code", "what"),
    [
        (hidden, "x._on_host = x.cpu()", "_on_host"),
        (hidden, "getattr(x, '_on_host', x)", "_on_host"),
        (hidden, "if x._version != seen: ...", "_version"),
        (hidden, "from contextvars import ContextVar", "ContextVar"),
        (ranked, "def f(x, *, ranks): ...", "f"),
        (ranked, "f = lambda rank: rank.first", "lambda"),
        (ranked, "engine.ranks.count", ".ranks"),
        (empty, "held = 1", "held"),
        (empty, "for x, found in xs: ...", "found"),
        (empty, "def f(said): ...", "said"),
    ],
)
def test_what_is_planted_is_found(look, code, what):
    assert what in set(look(ast.parse(code)))
