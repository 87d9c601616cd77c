"""What a process imports and goes through as it starts and ends, in an interpreter of its own."""

import json
import subprocess
import sys

import pytest

pytestmark = pytest.mark.process

# One interpreter, in which more and more is imported: what is not there by then was not before.
STAGES = """
import json, sys

def loaded(*names):
    print(json.dumps([name for name in names if name in sys.modules]))

import rlzoo
rlzoo.trace(rewards=[0, 0, 1], values=[0.3, 0.4, 0.6])
loaded("torch", "transformers", "torch._dynamo", "sympy")

import rlzoo.lm.build
loaded("torch", "torch._dynamo")
"""

LIST = """
import atexit, gc, sys
from rlzoo.cli import main

atexit.register(lambda: print("frozen", gc.get_freeze_count() > 0))  # runs after main's
main(WORDS)
assert gc.get_threshold()[0] == 50_000
assert "torch" not in sys.modules, "a list of names"
"""


def said(code):
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def stages():
    return [json.loads(line) for line in said(STAGES).splitlines()]


def test_typed_numbers_load_neither_transformers_nor_the_compiler(stages):
    assert stages[0] == ["torch"]


def test_a_policy_loads_no_compiler(stages):
    assert stages[1] == ["torch"]


@pytest.mark.parametrize("words", [["plugins"], ["show", "correction"]])
def test_a_list_imports_no_torch_and_the_collector_has_little_to_do(words):
    assert "frozen True" in said(LIST.replace("WORDS", str(words)))
