"""One training step reads in one room: the files that it enters, and how much of them it runs. And
how many functions a whole run enters."""

import ast
import json
import subprocess
import sys
from collections import Counter

import pytest

import rlzoo
from helpers import ROOT
from helpers.path import CORE, route
from helpers.scripts import script

# (of all files, of those outside accel/): no more than these, and fewer where you can.
FILES, OUTSIDE, STATEMENTS = 18, 13, 913
FUNCTIONS = 446  # of `rlzoo run recipe=grpo`, from its words to the end of its second step


@pytest.fixture(scope="module")
def path():
    """What the second step of `grpo` goes through: the first finds things out once."""
    trainer = rlzoo.open_recipe("grpo", ["device=cpu", "model=tiny"])
    trainer.step()
    return route(trainer.step)


def statements(file):
    """The lines on which a statement begins, definitions apart."""
    inside = ast.walk(ast.parse((CORE / file).read_text(encoding="utf-8")))
    named = (ast.FunctionDef, ast.ClassDef)
    return {x.lineno for x in inside if isinstance(x, ast.stmt) and not isinstance(x, named)}


def test_the_docs_list_the_files_that_a_step_enters(path):
    listed = script("generate").READING
    assert set(path.files) == set(listed)
    assert len(listed) == len(set(listed))


def test_a_step_enters_few_files_and_runs_few_lines(path):
    run = {
        file: len({line for name, line in path.lines if name == file} & statements(file))
        for file in path.files
    }
    print("\n".join(f"{n:5} {file}" for file, n in run.items()))
    assert len(run) <= FILES
    assert sum(not file.startswith("accel/") for file in run) <= OUTSIDE
    assert sum(run.values()) <= STATEMENTS


def functions(file):
    """The names of all functions of a file, methods and nested ones too, as `co_qualname`."""
    found = set()

    def visit(node, prefix):
        for child in ast.iter_child_nodes(node):
            name = f"{prefix}{getattr(child, 'name', '')}"
            if isinstance(child, ast.FunctionDef):
                found.add(name)
                visit(child, f"{name}.<locals>.")
            else:
                visit(child, f"{name}." if isinstance(child, ast.ClassDef) else prefix)

    visit(ast.parse((CORE / file).read_text(encoding="utf-8")), "")
    return found


@pytest.mark.landing
def test_a_run_enters_few_functions(tmp_path):
    """In a process of its own: what is found out once is found out there."""
    words = ["recipe=grpo", "train.steps=2", "device=cpu", "model=tiny", f"run.dir={tmp_path}/run"]
    code = (
        "import json, sys\n"
        "from helpers.path import route\n"
        "from rlzoo.cli import main\n"
        "found = route(lambda: main(['run', *sys.argv[1:]])).functions\n"
        "print('\\n' + json.dumps([*found]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *words], cwd=ROOT / "tests", capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    entered = {(file, name) for file, name in json.loads(done.stdout.splitlines()[-1])}
    every = {(file, name) for file in {f for f, _ in entered} for name in functions(file)}
    by_file = Counter(file for file, _ in entered & every)
    print("\n".join(f"{n:5} {file}" for file, n in sorted(by_file.items())))
    assert sum(by_file.values()) <= FUNCTIONS
