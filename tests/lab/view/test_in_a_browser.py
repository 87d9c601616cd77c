"""The pages of a run, a comparison and a diagnosis in a browser: what a reader can touch.

Pictures go to `$PAGES_PICTURES` where that is set.
"""

import os
from pathlib import Path

import pytest
import torch
from safetensors.numpy import load_file, save_file

from helpers.browser import CHROMIUM, browser
from helpers.made_up_reports import made_up_report_run, page_of
from helpers.made_up_runs import made_up_rows
from rlzoo.cli import main
from rlzoo.ops import td_lambda, whiten

pytestmark = [pytest.mark.landing, pytest.mark.skipif(CHROMIUM is None, reason="no chromium")]

GAMMA, LAM = 0.9, 0.8
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
const CONTROLS = "button, input, select, summary, .chart, #tokens";
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
    page_of(run_with_gae(folder / "run", "batch"), files["report"])
    rows = {f"lam{x:g}": (0.5 + x / 5, {"estimator__lam": x}) for x in (0.0, 0.5, 1.0)}
    (folder / "rows").mkdir()
    made_up_rows(folder / "rows", rows, 3)
    assert main(["compare", str(folder / "rows"), "--html", str(files["compare"])]) == 0
    small = ["--vocabulary", "3", "--horizon", "2", "--html", str(files["diagnose"])]
    assert main(["diagnose", "recipe=ppo_gae", "estimator=gae,rloo", *small]) == 0
    return files


def run_with_gae(path, over, name="gae", lam=LAM):
    """A run whose saved advantages are GAE's, whitened over the batch, the group, or not."""
    options = {"gamma": GAMMA, "lam": lam} if name == "gae" else {"gamma": GAMMA}
    run = made_up_report_run(path, name=name, options=options)
    for file in (run / "batches").glob("*.safetensors"):
        columns = load_file(file)
        columns |= credit(columns, lam, over)
        save_file(columns, file)
    return run


def credit(columns, lam, over):
    """What the zoo makes of a batch's rewards and values, as arrays (B, T)."""
    tensors = {name: torch.from_numpy(x) for name, x in columns.items()}
    mask, values = tensors["response_mask"], tensors["values"]
    raw = td_lambda(tensors["rewards"], values, tensors["bootstrap_values"], mask,
                    gamma=GAMMA, lam=lam)  # fmt: skip
    groups = tensors["group_ids"] if over == "group" else None
    white = raw if over == "none" else whiten(raw, mask, groups)
    made = {"raw_advantages": raw, "returns": (raw + values) * mask, "advantages": white}
    return {name: x.numpy() for name, x in made.items()}


def quiet(driver, file):
    assert driver.said == []
    assert driver.requests == [file.resolve().as_uri()]


def slide(driver, lam):
    driver.ask(f"by('lam-gae').value = {lam}; by('lam-gae').dispatchEvent(new Event('input'))")


# The numbers of each token of the shown response, by the titles of their columns.
NUMBERS = """(() => {
  const press = key => by("tokens").dispatchEvent(new KeyboardEvent("keydown", { key }));
  press("Home");
  return [...document.querySelectorAll("#tokens bdi")].map(() => {
    const rows = [...document.querySelectorAll("#numbers tr")];
    const found = rows.map(r => [...r.cells].map(c => c.textContent.replaceAll("−", "-")));
    press("ArrowRight");
    return Object.fromEntries(found);
  });
})()"""
TITLES = {"raw_advantages": "raw advantage", "returns": "return", "advantages": "advantage"}


@pytest.mark.parametrize("over", ["none", "batch", "group"])
def test_a_slider_recomputes_a_saved_batch(chromium, tmp_path, over):
    run = run_with_gae(tmp_path / "run", over)
    page = page_of(run)
    chromium.open(page)
    chromium.ask("by('tab-token').click(); by('response').selectedIndex = 5;"
                 "by('response').dispatchEvent(new Event('change'))")  # fmt: skip
    assert not chromium.ask("by('lam-gae').closest('.lambda').hidden")
    last = sorted((run / "batches").glob("*.safetensors"))[-1]
    saved = load_file(last)
    length = int(saved["response_mask"][5].sum())
    colours = set()
    for lam in (0.0, 0.35, 1.0, LAM):
        slide(chromium, lam)
        found = chromium.ask(NUMBERS)
        assert len(found) == length
        want = credit(saved, lam, over)
        blank = over == "group" and lam != LAM
        for name, title in TITLES.items():
            column = [token[title] for token in found]
            if blank and name == "advantages":
                assert column == ["–"] * length
            else:
                numbers = [float(x) for x in column]
                assert numbers == pytest.approx(want[name][5, :length], rel=6e-3, abs=2e-3)
        assert chromium.ask("by('moved').hidden") != blank
        colours.add(chromium.ask("by('others').innerHTML"))
        told = chromium.ask("by('lam-gae-now').textContent")
        assert ("as saved" in told) == (lam == LAM)
    assert len(colours) == (2 if over == "group" else 4)  # the other responses follow
    slide(chromium, 0.35)
    chromium.ask(
        "by('response').selectedIndex = 2; by('response').dispatchEvent(new Event('change'))"
    )
    want = credit(saved, 0.35, over)["raw_advantages"][2]
    assert float(chromium.ask(NUMBERS)[0]["raw advantage"]) == pytest.approx(want[0], rel=6e-3)
    assert chromium.ask("by('lam-gae').value") == "0.35"
    quiet(chromium, page)


@pytest.mark.parametrize(("name", "lam"), [("td0", 0), ("mc", 1)])
def test_estimators_that_are_gae_at_a_lambda_have_the_slider_there(chromium, tmp_path, name, lam):
    page = page_of(run_with_gae(tmp_path / "run", "batch", name, lam))
    chromium.open(page)
    assert not chromium.ask("by('lam-gae').closest('.lambda').hidden")
    assert chromium.ask("by('lam-gae-now').textContent") == f"{lam}, as saved"
    quiet(chromium, page)


@pytest.mark.parametrize("name", ["gae", "turn_gae"])
def test_without_gae_there_is_no_slider(chromium, tmp_path, name):
    """Also where the saved advantages are not what GAE makes of the saved rewards and values."""
    options = {"gamma": GAMMA, "lam": LAM}
    page = page_of(made_up_report_run(tmp_path / "run", name=name, options=options))
    chromium.open(page)
    chromium.ask("by('tab-token').click()")
    assert chromium.ask("by('lam-gae').closest('.lambda').hidden")
    assert chromium.ask("by('moved').hidden")
    quiet(chromium, page)


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
    assert marks >= 3
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
    assert moved >= (18 if kind == "report" else 5)
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
