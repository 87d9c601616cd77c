"""What docs/stages.md runs beside rlzoo's commands, and what the page claims."""

import json
import re
import shlex
import subprocess
import sys
from statistics import fmean

import pytest

from helpers import ROOT
from helpers.scripts import script
from rlzoo_lab.supervised.pairs import read_solutions, read_verdicts


def test_steps_are_judged_one_by_one():
    walk = script("process_rewards")
    assert walk.steps_of("azb>") == ["b", "a", "c"]
    assert walk.labels("azb>", ["b", "x", "c", "d"]) == [True, False, True, False]
    assert walk.labels("azb>", ["bb"]) == [False]


def test_what_is_judged_can_be_trained_on(model_dir, tmp_path, capsys):
    walk = script("process_rewards")
    file = tmp_path / "problems.jsonl"
    walk.main(["problems", str(file), "--n", "40"])
    walk.main(["demonstrations", str(tmp_path / "shown.jsonl"), "--n", "4"])
    first = json.loads((tmp_path / "shown.jsonl").read_text().splitlines()[0])
    assert first["response"].count(";") == walk.LETTERS - 1
    walk.main(["judge", "--model", str(model_dir), "--problems", str(file),
               "--out", str(tmp_path), "--n", "30"])  # fmt: skip
    assert "of the steps are right" in capsys.readouterr().out
    solutions = read_solutions(tmp_path / "steps.jsonl").rows
    verdicts = read_verdicts(tmp_path / "verdicts.jsonl").rows
    assert len(solutions) == len(verdicts) == 30
    for solution, verdict in zip(solutions, verdicts, strict=True):
        assert solution.prompt == verdict.prompt
        assert list(solution.labels) == walk.labels(solution.prompt, list(solution.steps))


def commands():
    page = (ROOT / "docs" / "stages.md").read_text(encoding="utf-8")
    text = page.partition("\n## Process rewards\n")[2].partition("\n## ")[0]
    for block in re.findall(r"```bash\n(.*?)^```$", text, re.DOTALL | re.MULTILINE):
        for line in block.replace("\\\n", " ").splitlines():
            yield shlex.split(line)


@pytest.mark.study
def test_the_page_shows_what_it_says(tmp_path):
    """Its very commands."""
    for words in commands():
        words = [word.replace("runs/steps", str(tmp_path)) for word in words]
        runner = {"python": [sys.executable], "rlzoo": [sys.executable, "-m", "rlzoo"]}
        subprocess.run([*runner[words[0]], *words[1:]], cwd=ROOT, check=True)
    held = json.loads((tmp_path / "prm" / "report.json").read_text())["held_out"]
    assert held["accuracy"] > 0.85
    gains = {}  # row -> a seed's accuracies, at steps 10, 20 and 30, less the first
    for row in ("outcome", "process", "loo", "prime"):
        for run in sorted((tmp_path / row).glob("*/metrics.jsonl")):
            lines = [json.loads(line) for line in run.read_text().splitlines()]
            first, *later = [line["eval/accuracy"] for line in lines if "eval/accuracy" in line]
            gains.setdefault(row, []).append([x - first for x in later])
    assert all(len(seeds) == 10 for seeds in gains.values())
    learned = {row: sum(seed[-1] > 0 for seed in seeds) for row, seeds in gains.items()}
    assert learned["process"] >= 8  # one was lost to the reward
    assert learned["prime"] == 10
    at_10 = {row: fmean(seed[0] for seed in seeds) for row, seeds in gains.items()}
    assert at_10["process"] > at_10["outcome"]
    assert at_10["prime"] > at_10["loo"]
