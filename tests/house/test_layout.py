"""The house: each package says what is in it, no room is too large, imports stand at the top."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

import rlzoo
import rlzoo_lab

HOMES = [Path(package.__file__).parent for package in (rlzoo, rlzoo_lab)]
LINES, FUNCTION = 450, 80
# What `rlzoo --help` must not load: an import inside a function keeps one of these out.
HEAVY = {"torch", "transformers", "rich", "matplotlib", "omegaconf", "numpy", "gymnasium", "pluggy"}
# (importing, imported): why that import stands inside a function, or under TYPE_CHECKING.
ALLOWED: dict[tuple[str, str], str] = {}


def name_of(path, home):
    parts = path.relative_to(home.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


FILES = {name_of(path, home): path for home in HOMES for path in sorted(home.rglob("*.py"))}
PACKAGES = [name for name, path in FILES.items() if path.name == "__init__.py"]


@cache
def tree(name):
    return ast.parse(FILES[name].read_text(encoding="utf-8"))


def imports(nodes):
    """The modules that import statements among the nodes name, whole."""
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            inner = [f"{node.module}.{alias.name}" for alias in node.names]
            yield from [name for name in inner if name in FILES] or [node.module]


def at_the_top(node):
    """The statements that run when a module is imported."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            continue
        if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield child
            yield from at_the_top(child)


@cache
def weight(name):
    """What of HEAVY comes along when a module is imported."""
    heavy, todo, seen = set(), [name], set()
    while todo:
        module = todo.pop()
        if module in seen:
            continue
        seen.add(module)
        heavy |= {module.split(".")[0]} & HEAVY
        todo += [module.rpartition(".")[0]] if "." in module and module in FILES else []
        todo += imports(at_the_top(tree(module))) if module in FILES else []
    return frozenset(heavy)


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_names_its_modules(package):
    doc = ast.get_docstring(tree(package), clean=False) or ""
    assert all(len(line) <= 100 for line in doc.splitlines())
    found = re.findall(r"^    ([a-z_]+(?:, [a-z_]+)*)  +\S", doc, re.MULTILINE)
    named = [name for names in found for name in names.split(", ")]
    inside = {n.rpartition(".")[2] for n in FILES if n.rpartition(".")[0] == package}
    assert sorted(named) == sorted(inside), "its docstring names other modules than it has"
    assert doc.split("\n\n")[0].strip().endswith((".", ")")), "opens with what it is for"
    assert package == "rlzoo" or "May import " in doc, "says what it may import"


def test_every_module_opens_with_what_it_is_for():
    silent = [n for n in FILES if not ast.get_docstring(tree(n)) and n != "rlzoo.__main__"]
    assert silent == []


def test_no_room_is_too_large():
    long = {
        n: lines for n, p in FILES.items() if (lines := len(p.read_text().splitlines())) > LINES
    }
    assert long == {}
    functions = {
        f"{name}.{node.name}": node.end_lineno - node.lineno + 1
        for name in FILES
        for node in ast.walk(tree(name))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    assert {name: lines for name, lines in functions.items() if lines > FUNCTION} == {}


def test_an_import_that_is_not_at_the_top_keeps_something_heavy_out():
    idle = set()
    for name in FILES:
        top = set(at_the_top(tree(name)))
        for node in ast.walk(tree(name)):
            if isinstance(node, ast.Import | ast.ImportFrom) and node not in top:
                idle |= {
                    (name, module)
                    for module in imports([node])
                    if module in FILES and not weight(module) - weight(name)
                }
    assert sorted(idle - set(ALLOWED)) == [], "belongs at the top of its file"
    assert sorted(set(ALLOWED) - idle) == [], "no such import, or one that needs no excuse"


def test_names_of_packages_that_were_public_still_are():
    from rlzoo.recipe import compose
    from rlzoo_lab.kit.oracle import Oracle, enumerate_episodes, make_columns, make_tree

    assert all(map(callable, (Oracle, enumerate_episodes, make_columns, make_tree, compose)))
    with pytest.raises(ImportError):
        from rlzoo_lab.kit.oracle import nothing_of_that_name  # noqa: F401
