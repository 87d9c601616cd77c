"""Some rows of the table in docs/components/architectures.md, with half as many tokens sampled; a
third by `pytest -m landing`, the rest by `pytest -m study`, and all by make_model_table.py."""

import re

import pytest
import torch

from helpers import ROOT
from helpers.worlds import changed
from invariants.architecture_table import checks
from invariants.architecture_table.checks import TOLERANCE, Case, check, write_model
from invariants.architecture_table.configs import ARCHITECTURES, FIRST, OUTSPOKEN, QUICK


def one(name):
    marks = [pytest.mark.landing] if name in QUICK else [pytest.mark.study]
    return pytest.param(name, marks=[] if name in FIRST else marks)


@pytest.mark.parametrize("name", [one(name) for name in ARCHITECTURES])
@pytest.mark.filterwarnings("ignore")
def test_an_architecture_is_right_or_says_why_not(tmp_path, zoo, name):
    row = check(name, tmp_path, zoo, new=20 if name not in QUICK else 10)
    assert row.wrong() == {}
    if name not in OUTSPOKEN:
        assert {cell.kind for cell in row.cells.values()} == {"right"}


def test_the_page_has_a_row_for_each():
    page = (ROOT / "docs" / "components" / "architectures.md").read_text(encoding="utf-8")
    table = page.partition("## The table")[2]
    rows = dict(re.findall(r"^\|([^\s|]+)[^|]*\|(.*)$", table, re.MULTILINE))
    assert [n for n in rows if n not in ("architecture", "---")] == list(ARCHITECTURES)
    assert [n for n, cells in rows.items() if "WRONG" in cells] == []
    odd = {n for n, cells in rows.items() if "refused" in cells or "noted" in cells}
    assert odd == OUTSPOKEN


@pytest.mark.landing
def test_every_cell_sees_a_fault(tmp_path, zoo, monkeypatch):
    write_model("llama", tmp_path)

    def nudge(network):
        for weight in network.parameters():
            weight.data += 1e-3 * torch.randn_like(weight)

    case, build, save = Case(tmp_path, zoo, new=10), Case.build, checks.save_model

    def nudged(self, *words):
        models = build(self, *words)
        nudge(models.engine.critic)
        return models

    def altered(models, place):
        nudge(models.policy.model)
        save(models, place)

    assert {case.cell(name).kind for name in TOLERANCE} == {"right"}
    monkeypatch.setattr(Case, "build", nudged)
    monkeypatch.setattr(checks, "save_model", altered)
    case = Case(tmp_path, zoo, new=10)
    warmer = 1.001 * case.models.policy.temperature
    case.models = changed(case.models, temperature=warmer)
    found = {name: case.cell(name).kind for name in TOLERANCE}
    assert found == dict.fromkeys(TOLERANCE, "wrong")
