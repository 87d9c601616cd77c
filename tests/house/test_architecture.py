"""The house rules: the core names no component, and what should not import torch does not."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import rlzoo
import rlzoo_lab
from rlzoo_lab.kit import checks

CORE = Path(rlzoo.__file__).parent
LAB = Path(rlzoo_lab.__file__).parent
ALGORITHMIC = (
    "estimators", "policy_losses", "value_losses", "kl_penalties", "aggregations", "tasks",
    "rewards",
)  # fmt: skip
# Packages no module of which may import torch when it is imported.
TORCH_FREE = ("recipe", "format", "runs", "stats", "plugin.registry", "plugin.sketch",
              "cli.guide", "cli.verb", "cli.plugins", "cli.recipes")  # fmt: skip
TORCH_FREE_LAB = ("api", "compare", "doctor", "view", "diagnose.command", "diagnose.trace.command",
                  "kit.command", "kit.new", "supervised.base", "supervised.export",
                  "supervised.fit", "supervised.reward", "supervised.sft", "table")  # fmt: skip


def strings(tree):
    """Every string constant, docstrings apart."""
    documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    docs = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, documented) and node.body and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docs:
            yield node


def test_the_core_names_no_component(zoo):
    names = {name for kind in ALGORITHMIC for name in zoo.shelves[kind]}
    # In the core a library, a part of a metric's name, and another trainer's key.
    names -= {"gymnasium", "length", "dataset"}
    found = [
        f"{path.name}:{node.lineno}: {node.value!r}"
        for path in sorted(CORE.rglob("*.py"))
        for node in strings(ast.parse(path.read_text()))
        if node.value in names
    ]
    assert found == []


def test_the_core_names_no_other_package():
    """What others bring comes in by a group of entry points; `rlzoo.names` is for Python users."""
    texts = {p.relative_to(CORE).as_posix(): list(strings(ast.parse(p.read_text())))
             for p in CORE.rglob("*.py")}  # fmt: skip
    said = {file: [node.value for node in nodes] for file, nodes in texts.items()}
    assert [file for file, lines in said.items() if "rlzoo.names" in lines] == ["__init__.py"]
    others = ("rlzoo_lab", "rlzoo_zoo", "rlzoo_bridges")
    assert [(f, x) for f, lines in said.items() for x in lines if any(o in x for o in others)] == []


@pytest.mark.process
def test_the_torch_free_modules_stay_so():
    modules = []
    for home, names in ((CORE, TORCH_FREE), (LAB, TORCH_FREE_LAB)):
        for name in names:
            path = home / name.replace(".", "/")
            files = sorted(path.rglob("*.py")) if path.is_dir() else [path.with_suffix(".py")]
            inside = [f.relative_to(home.parent).with_suffix("") for f in files]
            modules += [".".join(f.parts).removesuffix(".__init__") for f in inside]
    modules.remove("rlzoo_lab.api.preview")  # counts a model's parameters
    code = (
        "import importlib, sys\nfor name in sys.argv[1:]:\n    importlib.import_module(name)\n"
        "    assert 'torch' not in sys.modules, name"
    )
    done = subprocess.run([sys.executable, "-c", code, *modules], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.process
def test_help_and_recipes_are_quick_and_torch_free():
    for words in (["--help"], ["recipes"]):
        code = (
            "import resource, sys\nfrom rlzoo.cli import main\n"
            f"try: main({words!r})\nexcept SystemExit: pass\n"
            "assert 'torch' not in sys.modules\n"
            "use = resource.getrusage(resource.RUSAGE_SELF)\n"
            "print(use.ru_utime + use.ru_stime, file=sys.stderr)"
        )
        seconds = [
            float(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True,
                                 check=True).stderr)
            for _ in range(3)
        ]  # fmt: skip
        assert min(seconds) <= 0.8  # 0.4 on a slow core; torch would be 2


def test_the_kit_is_a_module_too():
    from rlzoo.checks import run_checks

    assert run_checks is checks.run_checks
    with pytest.raises(ImportError):
        from rlzoo.checks import nothing_of_that_name  # noqa: F401


def test_the_facade_exports_what_it_lists():
    for name in rlzoo.__all__:
        assert getattr(rlzoo, name) is not None
