"""What a process imports and goes through as it starts and ends, in an interpreter of its own."""

import subprocess
import sys

import pytest

pytestmark = pytest.mark.process

MODELS = """
import sys
from rlzoo.accel.hf_internals import import_models

import_models()
assert "transformers.modeling_utils" in sys.modules
assert "scipy.optimize" not in sys.modules
assert "scipy.linalg" not in sys.modules
from transformers.loss.loss_for_object_detection import linear_sum_assignment

rows, columns = linear_sum_assignment([[4, 1], [2, 8]])
assert (rows.tolist(), columns.tolist()) == ([0, 1], [1, 0])
import scipy.optimize

assert scipy.optimize.linear_sum_assignment is sys.modules["scipy.optimize"].linear_sum_assignment
assert scipy.optimize.linprog([1], bounds=[(2, 3)]).x == [2]
"""

LIST = """
import atexit, gc, sys
from rlzoo.cli import main

atexit.register(lambda: print("frozen", gc.get_freeze_count() > 0))  # runs after main's
main(["plugins"])
assert gc.get_threshold()[0] == 50_000
assert "torch" not in sys.modules, "a list of names"
"""


def said(code):
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_models_are_imported_without_scipy_which_comes_when_it_is_called():
    pytest.importorskip("scipy")
    said(MODELS)


def test_a_list_imports_no_torch_and_the_collector_has_little_to_do():
    assert "frozen True" in said(LIST)
