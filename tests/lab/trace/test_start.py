"""What a trace of typed numbers imports: it reads no model."""

import subprocess
import sys

import pytest


@pytest.mark.process
def test_typed_numbers_load_neither_transformers_nor_the_compiler():
    code = (
        "import sys, rlzoo\n"
        "rlzoo.trace(rewards=[0, 0, 1], values=[0.3, 0.4, 0.6])\n"
        "print(*sorted({'transformers', 'torch._dynamo', 'sympy'} & sys.modules.keys()))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == []


@pytest.mark.process
def test_a_policy_loads_no_compiler():
    code = "import sys, rlzoo.lm.build\nprint('torch._dynamo' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["False"]
