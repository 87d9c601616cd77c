"""The pages of a run, a comparison and a diagnosis in a browser: what a reader can touch.

Pictures go to `$PAGES_PICTURES` where that is set.
"""

import os
from pathlib import Path

import pytest

import rlzoo
from helpers.browser import CHROMIUM, browser
from helpers.made_up_reports import made_up_report_run, page_of
from helpers.made_up_runs import made_up_rows
from rlzoo.cli import main

pytestmark = [pytest.mark.landing, pytest.mark.skipif(CHROMIUM is None, reason="no chromium")]

KINDS = ("report", "compare", "diagnose")
# Every control, moved once: those that are seen when their turn comes.
MOVE = """
const seen = () => document.body.innerHTML; // without what a control itself shows
function move(control) {
  const event = kind => control.dispatchEvent(new Event(kind, { bubbles: true }));
  if (control.type === "range") {
    control.value = control.value > 0.5 ? 0.25 : 0.75;
    event("input");
  } else if (control.tagName === "SELECT") {
    control.selectedIndex = (control.selectedIndex + 1) % control.options.length;
    event("change");
  } else if (["BUTTON", "INPUT", "SUMMARY"].includes(control.tagName)) control.click();
  else {
    control.focus();
    control.dispatchEvent(new KeyboardEvent("keydown", { key: "ArrowRight", bubbles: true }));
  }
}
const CONTROLS = "button, input, select, summary, .chart[tabindex], #tokens";
const shown = () => [...document.querySelectorAll(CONTROLS)].filter(x => x.checkVisibility());
// How many were moved, and those of which nothing followed.
function moveAll() {
  const idle = [];
  let count = 0;
  for (const control of shown()) {
    if (!control.isConnected || !control.checkVisibility()) continue;
    if (control.tagName === "SELECT" && control.options.length < 2) continue;
    const before = seen();
    count += 1;
    move(control);
    if (seen() === before && control.className !== "now")
      idle.push(control.outerHTML.slice(0, 200));
  }
  return [count, idle];
}
const unnamed = () => [...document.querySelectorAll("[tabindex='0'], button, input, select, svg")]
  .filter(x => !x.closest("svg a"))
  .filter(x => !(x.ariaLabel || (x.tagName !== "svg" && x.textContent.trim())
    || (x.labels && x.labels.length) || x.getAttribute("aria-labelledby")))
  .map(x => x.outerHTML.slice(0, 200));
"""


@pytest.fixture(scope="module")
def chromium():
    with browser() as driver:
        yield driver


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    pytest.importorskip("matplotlib")
    folder = tmp_path_factory.mktemp("pages")
    files = {kind: folder / f"{kind}.html" for kind in KINDS}
    page_of(made_up_report_run(folder / "run"), files["report"])
    rows = {f"lam{x:g}": (0.5 + x / 5, {"estimator__lam": x}) for x in (0.0, 0.5, 1.0)}
    (folder / "rows").mkdir()
    made_up_rows(folder / "rows", rows, 3)
    assert main(["compare", str(folder / "rows"), "--html", str(files["compare"])]) == 0
    small = ["--vocabulary", "3", "--horizon", "2", "--html", str(files["diagnose"])]
    assert main(["diagnose", "recipe=ppo_gae", "estimator=gae,rloo", *small]) == 0
    return files


def quiet(driver, file):
    assert driver.said == []
    assert driver.requests == [file.resolve().as_uri()]


@pytest.mark.parametrize("kind", ["compare", "diagnose"])
def test_a_row_shows_itself_wherever_it_is(chromium, written, kind):
    chromium.open(written[kind])
    state = """(() => [document.body.classList.contains("one-row"), by("row-of").hidden,
      by("row-of").textContent, [...new Set([...document.querySelectorAll(".of-row")]
        .map(x => x.dataset.row))], document.querySelectorAll("figure .of-row").length])()"""
    nothing = [False, True, "", [], 0]
    assert chromium.ask(state) == nothing
    chromium.ask("document.querySelectorAll('button.pick')[0].focus()")
    chromium.press("ArrowDown")
    dimmed, hidden, told, rows, marks = chromium.ask(state)
    assert (dimmed, hidden, rows) == (True, False, ["1"])
    assert marks >= {"compare": 3, "diagnose": 1}[kind]  # one in each of its figures
    name = chromium.ask("document.querySelectorAll('button.pick')[1].textContent")
    assert name in told
    other = "document.querySelector('figure [data-row=\"0\"]')"
    assert chromium.ask(f"document.activeElement.click(), {state}")[3] == ["1"]
    chromium.ask(f"{other}.dispatchEvent(new MouseEvent('mouseenter'))")
    assert chromium.ask(state)[3] == ["0"]
    chromium.ask(f"{other}.dispatchEvent(new MouseEvent('mouseleave'))")
    assert chromium.ask(state)[3] == ["1"]  # it was kept
    assert chromium.ask("document.activeElement.ariaPressed") == "true"
    chromium.ask("document.activeElement.blur()")
    chromium.press("Escape")
    assert chromium.ask(state)[0] is False
    quiet(chromium, written[kind])


@pytest.mark.parametrize("kind", KINDS)
def test_every_control_moves_something_and_has_a_name(chromium, written, kind):
    chromium.open(written[kind])
    assert written[kind].stat().st_size < 300_000
    chromium.ask(MOVE)
    assert chromium.ask("unnamed()") == []
    moved = 0
    for tab in ("trend", "step", "token") if kind == "report" else ("",):
        chromium.ask(f"by('tab-{tab}')?.click()")
        count, idle = chromium.ask("moveAll()")
        assert idle == []
        moved += count
    assert moved >= {"report": 18, "compare": 5, "diagnose": 4}[kind]
    quiet(chromium, written[kind])


@pytest.mark.parametrize("width", [1280, 400])
@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_it_fits_its_window(chromium, written, kind, dark, width):
    chromium.open(written[kind], width=width, dark=dark)
    for tab in ("trend", "step", "token") if kind == "report" else ("",):
        chromium.ask(f"by('tab-{tab}')?.click()")
        assert chromium.ask("document.documentElement.scrollWidth") <= width
        if folder := os.environ.get("PAGES_PICTURES"):
            theme = "dark" if dark else "light"
            chromium.picture(Path(folder) / f"{kind}{tab}-{width}-{theme}.png", whole=True)
    quiet(chromium, written[kind])


@pytest.mark.parametrize("kind", KINDS)
def test_a_print_is_light_and_whole(chromium, written, kind):
    chromium.open(written[kind], dark=True)
    ground = "getComputedStyle(document.documentElement).getPropertyValue('--page')"
    assert chromium.ask(ground) == "#14171d"
    chromium.ask("document.querySelectorAll('button.pick')[1]?.focus()")
    dark = [{"name": "prefers-color-scheme", "value": "dark"}]
    chromium.call("Emulation.setEmulatedMedia", {"media": "print", "features": dark})
    assert chromium.ask(ground) == "#ffffff"
    each = "[...document.querySelectorAll('{}')].map(x => {})".format
    assert set(chromium.ask(each("[role=tabpanel], figure", "x.checkVisibility()"))) == {True}
    assert True not in chromium.ask(each("#row-of, .lambda, .tabs", "x.checkVisibility()"))
    faint = chromium.ask(each("figure [data-row]", "getComputedStyle(x).opacity"))
    assert set(faint) <= {"1"}
    assert len(chromium.call("Page.printToPDF")["data"]) > 10_000


@pytest.mark.parametrize("names", [[], ["--tokens", "a,b,c"]], ids=["typed", "named"])
def test_a_slider_moves_lambda_in_a_trace(chromium, tmp_path, names):
    file = tmp_path / "trace.html"
    words = ["--rewards", "0,0,1", "--values", ".3,.4,.6", "--html", str(file)]
    assert main(["trace", *words, *names]) == 0
    chromium.open(file)
    cells = """(lam => { by("lam").value = lam; by("lam").dispatchEvent(new Event("input"));
      return [...document.querySelectorAll("tbody tr")].slice(0, 3)
        .map(row => [...row.cells].slice(-2).map(cell => Number(cell.textContent))) })"""
    assert chromium.ask(f"{cells}(0)") == [[0.1, 0.4], [0.2, 0.6], [0.4, 1]]
    assert chromium.ask(f"{cells}(0.95)") == [[0.651, 0.951], [0.58, 0.98], [0.4, 1]]
    quiet(chromium, file)
    assert main(["trace", *words, "--estimator", "mc"]) == 0
    assert 'id="lam"' not in file.read_text()


def test_a_notebook_shows_the_slider_of_a_trace(chromium, tmp_path):
    numbers = {"rewards": [0, 0, 1], "values": [0.3, 0.4, 0.6]}
    file = tmp_path / "cell.html"
    file.write_text(rlzoo.trace(**numbers)._repr_html_())
    chromium.open(file)
    assert chromium.ask("document.querySelector('iframe').clientHeight") > 300
    inside = tmp_path / "inside.html"
    inside.write_text(chromium.ask("document.querySelector('iframe').srcdoc"))
    chromium.open(inside)
    assert chromium.ask("by('lam').value") == "0.95"
    assert "<iframe" not in rlzoo.trace(**numbers, estimator="mc")._repr_html_()
