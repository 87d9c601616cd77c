"""Types reach a user: the stub has the public names, each is what it is at run time, and installed
packages say that they are typed. mypy reads tests/house/typed_user.py, with the project's settings
and, as a user does, with `--strict` and without them."""

import ast
import inspect
import re
import shutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest
from hatchling.builders.wheel import WheelBuilder

import rlzoo
from rlzoo.plugin.installed import installed

ROOT = Path(rlzoo.__file__).parent.parent
STUB = ast.parse((ROOT / "rlzoo" / "__init__.pyi").read_text(encoding="utf-8"))
IMPORTS = {a.asname or a.name: node for node in STUB.body if isinstance(node, ast.ImportFrom)
           for a in node.names}  # fmt: skip
NAMES = {point.name: point for point in installed("rlzoo.names")}
OURS = {n: p for n, p in NAMES.items() if p.module.split(".")[0] in ("rlzoo_lab", "rlzoo_zoo")}
OTHERS = {n for n, p in NAMES.items() if n not in OURS and p.attr}  # of strangers


MODULES = {n for n, p in OURS.items() if not p.attr}
FUNCTIONS = [n for n in sorted(set(IMPORTS) - MODULES) if inspect.isfunction(getattr(rlzoo, n))]


def test_the_stub_has_the_public_names():
    public = set(rlzoo.__all__) - OTHERS
    assert {*IMPORTS, "__version__"} == public | MODULES
    aliases = [a for node in IMPORTS.values() for a in node.names]
    assert all(a.asname == a.name for a in aliases), "no editor takes it for public"


@pytest.mark.parametrize("name", sorted(IMPORTS))
def test_a_name_of_the_stub_is_what_it_is_at_run_time(name):
    home = import_module(IMPORTS[name].module)
    if name in OURS:
        there = import_module(f"{home.__name__}.{name}") if name in MODULES else None
        assert (there or getattr(home, name)) is OURS[name].load()
    else:
        assert getattr(home, name) is getattr(rlzoo, name)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_its_signature_is_typed(name):
    signature = inspect.signature(getattr(rlzoo, name))
    assert signature.return_annotation is not signature.empty
    bare = [p.name for p in signature.parameters.values() if p.annotation is p.empty]
    assert bare == []


def test_the_users_script_has_each_public_name():
    script = (ROOT / "tests" / "house" / "typed_user.py").read_text(encoding="utf-8")
    assert {n for n in set(rlzoo.__all__) - OTHERS if not re.search(rf"\b{n}\b", script)} == set()


@pytest.mark.landing
def test_the_users_script_passes_strict_mypy(tmp_path):
    pytest.importorskip("mypy")
    shutil.copy(ROOT / "tests" / "house" / "typed_user.py", tmp_path)
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--config-file=", "typed_user.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name", ["run", "sweep", "diagnose"])
def test_an_editor_completes_the_keywords(name, tmp_path):
    jedi = pytest.importorskip("jedi")
    script = jedi.Script(f"import rlzoo\nrlzoo.{name}(", project=jedi.Project(tmp_path))
    offered = {c.name.rstrip("=") for c in script.complete(2) if c.name.endswith("=")}
    named = inspect.signature(getattr(rlzoo, name)).parameters.values()
    assert offered == {p.name for p in named if p.kind is not p.VAR_KEYWORD}


def test_the_wheel_has_the_types():
    builder = WheelBuilder(str(ROOT))
    with builder.config.set_build_data({"artifacts": [], "force_include": {}, "build_hooks": ()}):
        inside = {f.distribution_path for f in builder.recurse_included_files()}
    packages = ("rlzoo", "rlzoo_zoo", "rlzoo_lab", "rlzoo_bridges")
    wanted = {"rlzoo/__init__.pyi", *(f"{package}/py.typed" for package in packages)}
    assert wanted <= inside
