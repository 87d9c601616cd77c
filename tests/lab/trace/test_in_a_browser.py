"""The page of a trace in a browser: a token shows its row, a slider recomputes the advantages."""

import re

import pytest

from helpers.browser import CHROMIUM, browser
from rlzoo.cli import parse
from rlzoo_lab.trace import command
from rlzoo_lab.trace.html import page

pytestmark = [pytest.mark.landing, pytest.mark.skipif(CHROMIUM is None, reason="no chromium")]

NUMBERS = ("--rewards", "0.1,0,-0.2,0,1", "--values", "0.3,0.4,0.9,0.6,0.8", "--bootstrap", "0.5",
           "--response-mask", "1,1,0,1,1", "--gamma", "0.9", "--tokens", "a,b,<i>,d,e")  # fmt: skip


def traced(zoo, *words):
    arguments = parse(["trace", *NUMBERS, *words])
    return command.trace(arguments, zoo)


@pytest.fixture(scope="module")
def chromium():
    with browser() as driver:
        yield driver


@pytest.fixture
def opened(zoo, chromium, tmp_path):
    def go(*words, **how):
        file = tmp_path / "trace.html"
        file.write_text(page(traced(zoo, *words)), encoding="utf-8")
        chromium.open(file, **how)
        return file

    return go


def quiet(driver, file):
    assert driver.said == []
    assert driver.requests == [file.resolve().as_uri()]


def column(driver, name, cell):
    """The numbers of a column of a table, by its header."""
    found = driver.ask(f"""(() => {{
      const table = document.getElementById("t{name}-0").closest("table");
      const i = [...table.tHead.rows[0].cells].findIndex(c => c.textContent === "{cell}");
      return [0, 1, 3, 4].map(t => document.getElementById("t{name}-" + t).cells[i].textContent);
    }})()""")
    return [float(re.sub(r"[\u2007\u2008]", "", x).replace("\u2212", "-")) for x in found]


@pytest.mark.parametrize("others", [(), ("whiten=batch",)])
def test_a_slider_recomputes_what_a_trace_computes(zoo, chromium, opened, others):
    file = opened("--lam", "0.5,1", *others)
    header = "advantage\\nraw" if others else "advantage"
    assert (
        chromium.ask("[...document.querySelectorAll('.lambda')].map(p => p.hidden)") == [False] * 2
    )
    for lam in (0.0, 0.25, 0.8, 1.0, 0.5):
        chromium.ask(f"(() => {{ const s = document.getElementById('lam-0'); s.value = {lam};"
                     "s.dispatchEvent(new Event('input')); })()")  # fmt: skip
        want = traced(zoo, "--lam", str(lam), *others).credits[0]
        own = [0, 1, 3, 4]
        for name, head in (("raw_advantages", header), ("returns", "return")):
            numbers = [want.columns[name][t] for t in own]
            assert column(chromium, 0, head) == pytest.approx(numbers, rel=1e-3, abs=1e-4)
        stale = "document.querySelectorAll('{}.stale').length"
        assert chromium.ask(stale.format("td")) == (4 if others and lam != 0.5 else 0)
        assert (chromium.ask(stale.format("pre")) > 0) == (lam != 0.5)
        told = chromium.ask("document.getElementById('lam-0-now').textContent")
        assert ("as saved" in told) == (lam == 0.5)
    assert column(chromium, 1, header) == pytest.approx(
        [traced(zoo, "--lam", "1", *others).credits[0].columns["raw_advantages"][t] for t in own],
        rel=1e-3,
    )
    quiet(chromium, file)


def test_a_token_shows_its_row(chromium, opened):
    file = opened("--lam", "0.5")
    shown = "document.getElementById('row-of')"
    assert chromium.ask(f"{shown}.hidden")
    chromium.ask("document.querySelector('.tokens a[href=\"#t0-4\"]').focus()")
    assert "t 4" in chromium.ask(f"{shown}.textContent")
    assert "reward 1" in chromium.ask(f"{shown}.textContent")
    assert chromium.ask("document.querySelector('tr.on').id") == "t0-4"
    chromium.ask("document.activeElement.blur()")
    assert chromium.ask(f"{shown}.hidden")
    token = "document.querySelector('.tokens a[href=\"#t0-2\"]')"
    chromium.ask(f"{token}.dispatchEvent(new MouseEvent('mouseenter'))")
    assert "<i>" in chromium.ask(f"{shown}.textContent")
    quiet(chromium, file)


def test_other_estimators_have_no_slider_and_without_scripts_all_is_there(chromium, opened):
    file = opened("--estimator", "td0,rloo")
    assert chromium.ask("document.querySelectorAll('.lambda').length") == 0
    quiet(chromium, file)
    opened("--lam", "0.5", scripts=False)
    chromium.call("Emulation.setScriptExecutionDisabled", {"value": False})
    assert chromium.ask("document.querySelector('.lambda').hidden")
    assert chromium.ask("document.querySelectorAll('tbody tr').length") == 6
