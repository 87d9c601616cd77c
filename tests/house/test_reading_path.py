"""One training step reads in one room: the files that it enters, and how much of them it runs."""

import ast

import pytest

import rlzoo
from helpers.path import CORE, route
from helpers.scripts import script

# (of all files, of those outside accel/): no more than these, and fewer where you can.
FILES, OUTSIDE, STATEMENTS = 23, 14, 1000


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
