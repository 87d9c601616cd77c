"""README.md as it is typed: each block in an empty folder, in order, by a shell that knows no more;
what it prints is what the page shows. Its counts and numbers are those of the zoo and the docs."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from docs.test_questions import missing
from helpers import ROOT

TEXT = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", TEXT, re.M | re.S)


def typed(kind, code, folder):
    """What a block prints; the shell finds this environment's commands, and nothing else is set."""
    bin = Path(sys.executable).parent
    found = {"PATH": f"{bin}:{os.environ['PATH']}", "HOME": str(folder), "COLUMNS": "100"}
    found["OMP_NUM_THREADS"] = "1"
    words = ["bash", "-euc", code] if kind == "bash" else [sys.executable, "-c", code]
    done = subprocess.run(
        words, cwd=folder, env=found, text=True, capture_output=True, timeout=1800, check=False
    )
    assert done.returncode == 0, f"{code}\n{done.stderr}"
    return done.stdout


@pytest.mark.landing
@pytest.mark.process
def test_it_prints_what_it_says_when_typed(tmp_path):
    printed, shells = "", []
    for kind, code in BLOCKS:
        if kind == "text":
            assert missing(code, printed) is None, printed
        elif kind == "bash" and "pip install" not in code:
            printed = typed(kind, code, tmp_path)
            shells.append(printed)
        elif kind == "python" and "@component" in code:
            (tmp_path / "my_gae.py").write_text(code)
            export = "export RLZOO_PLUGINS=my_gae.py; rlzoo run ppo_gae estimator=my_gae model=nano"
            typed("bash", f"{export} train.steps=1 eval.samples=8 run.dir=mine", tmp_path)
            assert "my_gae" in (tmp_path / "mine" / "recipe.yaml").read_text()
        elif kind == "python":
            assert len(typed(kind, code, tmp_path).splitlines()) == 2
    scores = re.findall(r"held-out score (\S+)", shells[0])
    said = re.search(r"held-out score (\S+) before, (\S+) to (\S+) after", " ".join(TEXT.split()))
    assert round(float(scores[0]), 2) == float(said[1])
    assert float(said[2]) <= round(float(scores[-1]), 2) <= float(said[3])
    for file in re.findall(r"runs/a/\w+\.html", TEXT):
        assert (tmp_path / file).stat().st_size > 10_000


def test_its_counts_are_the_zoos(zoo):
    recipes = len(list((ROOT / "configs" / "recipes").glob("*.yaml")))
    shipped = {
        kind: sum(
            c.function.__module__.startswith("rlzoo_zoo.") for c in zoo.shelves[kind].values()
        )
        for kind in ("estimators", "policy_losses")
    }
    assert f"[{recipes} recipes]" in TEXT
    assert f"[{shipped['estimators']} estimators]" in TEXT
    assert f"[{shipped['policy_losses']} policy losses]" in TEXT


def test_its_numbers_of_others_are_the_pages():
    page = (ROOT / "docs" / "references.md").read_text(encoding="utf-8").splitlines()
    table = TEXT.partition("## Checked against others")[2].partition("## ")[0]
    rows = [line.strip("|").split("|") for line in table.splitlines() if line.startswith("|")][2:]
    assert rows
    for row in rows:
        assert [line for line in page if all(f"|{cell}|" in line for cell in row[1:])], row
