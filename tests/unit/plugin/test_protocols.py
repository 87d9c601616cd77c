"""What strangers' objects are: which members of a task the core knows, and where it looks."""

import ast
import dataclasses
import re
from pathlib import Path

import rlzoo
import rlzoo_lab
from rlzoo.plugin.protocols import Abilities, abilities

NAMES = {f.name for f in dataclasses.fields(Abilities)}


class Bare:
    def draw(self, split, n, generator):
        return []

    def score(self, responses):
        return responses


class Whole(Bare):
    one_answer, respond_role, stops, domains, notes = True, "tool", ("]",), ["a"], ["b"]

    def method(self, turns):
        return turns

    is_correct = extract = demonstrate = respond = state_keys = domain_of = fit = method


def test_a_task_without_more_has_the_defaults():
    assert abilities(Bare()) == Abilities()
    assert not Abilities().one_answer
    assert Abilities().respond_role == "user"


def test_each_member_is_found():
    task = Whole()
    found = abilities(task)
    assert {n: getattr(found, n) for n in NAMES} == {n: getattr(task, n) for n in NAMES}
    assert all(getattr(found, n) != getattr(Abilities(), n) for n in NAMES)


def test_of_a_class_what_its_objects_have():
    assert abilities(Whole).demonstrate is not None
    assert abilities(Bare).demonstrate is None


def test_each_member_is_documented():
    said = set(re.findall(r"(\w+): ", Abilities.__doc__ or ""))
    assert said >= NAMES


def test_nobody_else_asks_a_task_what_it_has():
    """A call of getattr or hasattr with such a name, on a task."""
    asked = []
    for package in (rlzoo, rlzoo_lab):
        for file in sorted(Path(package.__file__).parent.rglob("*.py")):
            for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
                if (
                    isinstance(node, ast.Call)
                    and ast.unparse(node.func) in ("getattr", "hasattr")
                    and isinstance(node.args[1], ast.Constant)
                    and node.args[1].value in NAMES
                ):
                    asked.append(f"{file.name}:{node.lineno}")
    assert asked == []
