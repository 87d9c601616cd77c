"""What a release and the workflows call are parts that .ci/run has."""

import re

import pytest
import yaml

from helpers import ROOT

RUN = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
HELPERS = {"tools", "built", "attacked", "resolved"}
PARTS = set(re.findall(r"^(\w+)\(\) \{", RUN, re.M)) - HELPERS
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


def by_default(text):
    return re.search(r"^for part in \$\{\*:-([\w ]+)\}; do$", text, re.M)[1].split()


def test_the_parts_by_default_are_there():
    release = by_default((ROOT / ".ci" / "release").read_text(encoding="utf-8"))
    assert set(by_default(RUN)) <= set(release)
    assert {*release, "lowest", "newest"} == PARTS


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_calls_parts_that_are_there(path):
    jobs = yaml.safe_load(path.read_text(encoding="utf-8"))["jobs"].values()
    called = []
    for job in jobs:
        matrix = job.get("strategy", {}).get("matrix", {})
        called += [*matrix.get("part", ()), *(one["part"] for one in matrix.get("include", ()))]
        runs = [step["run"] for step in job["steps"] if step.get("run", "").startswith(".ci/run")]
        assert runs or "needs" in job
        called += [word for line in runs for word in line.split()[1:] if re.fullmatch(r"\w+", word)]
    assert called
    assert set(called) <= PARTS
