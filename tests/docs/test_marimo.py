"""The marimo notebooks of the docs: each runs as a script, at small sizes."""

import os
import re
import subprocess
import sys
from importlib.util import module_from_spec, spec_from_file_location
from types import SimpleNamespace

import pytest

from helpers import ROOT

pytest.importorskip("marimo")

NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.py"))
SMALL = {
    "first_half_hour": "--steps 1 --samples 8 --prompts 2",
    "study_entropy": "--steps 1",
    "study_lambda": "--steps 1 --seeds 2",
    "study_staleness": "--steps 1",
}


def test_each_notebook_is_of_the_docs_and_has_something_to_move_or_to_run():
    assert {path.stem for path in NOTEBOOKS} == set(SMALL)
    page = (ROOT / "docs" / "python.md").read_text(encoding="utf-8")
    for path in NOTEBOOKS:
        assert f"notebooks/{path.name}" in page
        source = path.read_text(encoding="utf-8")
        assert "mo.ui." in source
        assert set(re.findall(r"import (rlzoo[\w.]*)|from (rlzoo[\w.]*)", source)) <= {
            ("rlzoo", ""), ("", "rlzoo"), ("", "rlzoo.ops")}  # fmt: skip


@pytest.mark.landing
@pytest.mark.process
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_as_a_script(path, tmp_path):
    environment = {k: v for k, v in os.environ.items() if k != "RLZOO_PLUGINS"}
    done = subprocess.run(
        [sys.executable, str(path), "--", *SMALL[path.stem].split()], cwd=tmp_path,
        env=environment | {"OMP_NUM_THREADS": "1"}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


@pytest.mark.landing
def test_a_moved_control_runs_what_depends_on_it():
    """With another critic in the study of lambda, another lambda points truest."""
    name = "study_lambda"
    spec = spec_from_file_location(name, ROOT / "docs" / "notebooks" / f"{name}.py")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    found = []
    for critic in ("zero", "exact"):
        moved = {"critic": SimpleNamespace(value=critic), "lam": SimpleNamespace(value=(0, 1))}
        _, names = module.app.run(defs=moved | {"learned": None, "size": None})
        found.append(names["predicted"])
    assert found == ["gae at lambda = 1", "gae at lambda = 0"]
