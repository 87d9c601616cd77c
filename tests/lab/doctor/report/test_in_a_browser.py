"""The page of a run in a browser: `pytest -m study tests/lab/doctor/report/test_in_a_browser.py`.

Pictures go to `$REPORT_PICTURES` where that is set.
"""

import os
from pathlib import Path

import pytest

from helpers.browser import CHROMIUM, browser
from helpers.made_up_reports import HOSTILE, made_up_report_run, page_of
from rlzoo.runs.folder import RunFolder
from rlzoo.runs.lock import locked
from rlzoo_lab.doctor.report import command

pytestmark = [pytest.mark.study, pytest.mark.skipif(CHROMIUM is None, reason="no chromium")]

RUNS = {
    "small": {},
    "long": {"steps": 1000, "batches": 4, "groups": 64, "samples": 8, "tokens": 8000,
             "vocabulary": 5000, "extra": [f"m{i}" for i in range(60)]},
    "hostile": {"texts": HOSTILE, "tokens": 8000, "groups": 9, "extra": HOSTILE[:8]},
    "bare": {"batches": 0},
}  # fmt: skip
AT = "[...document.querySelectorAll('#tokens bdi')].findIndex(b => b.className === 'on')"
OPEN = "[...document.querySelectorAll('[role=tabpanel]')].filter(p => !p.hidden).map(p => p.id)"


@pytest.fixture(scope="module")
def chromium():
    with browser() as driver:
        yield driver


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    folder = tmp_path_factory.mktemp("reports")
    return {n: page_of(made_up_report_run(folder / n, **kw)) for n, kw in RUNS.items()}


def quiet(driver, page):
    """Nothing was said, nothing fetched, nothing of the run's texts executed."""
    assert driver.said == []
    assert driver.requests == [page.resolve().as_uri()]
    assert driver.ask("document.title") == page.parent.name


@pytest.mark.parametrize("name", RUNS)
def test_tabs_work_by_mouse_and_keyboard(chromium, pages, name):
    page = pages[name]
    chromium.open(page)
    assert page.stat().st_size < 5e6
    assert chromium.ask(OPEN) == ["trend"]
    chromium.ask("document.getElementById('tab-step').click()")
    assert chromium.ask(OPEN) == ["step"]
    chromium.ask("document.getElementById('tab-step').focus()")
    for key, opened in [("ArrowRight", "token"), ("ArrowRight", "trend"), ("ArrowLeft", "token"),
                        ("Home", "trend"), ("End", "token")]:  # fmt: skip
        chromium.press(key)
        assert chromium.ask(OPEN) == [opened]
        assert chromium.ask("document.activeElement.id") == f"tab-{opened}"
        assert chromium.ask("document.activeElement.ariaSelected") == "true"
    assert chromium.ask("location.hash") == "#token"
    quiet(chromium, page)


@pytest.mark.parametrize("name", ["small", "long", "hostile"])
def test_what_shades_the_tokens_is_chosen_and_keys_move_among_them(chromium, pages, name):
    page = pages[name]
    chromium.open(page)
    chromium.ask("document.getElementById('tab-token').click()")
    colours = "[...document.querySelectorAll('#tokens bdi')].map(b => b.style.background).join()"
    seen = set()
    for shade in ("advantages", "values", "log_ratio", "log_gap", "entropy", "mismatch"):
        chromium.ask(f"by('shade').value = '{shade}';"
                     "by('shade').dispatchEvent(new Event('change'))")  # fmt: skip
        seen.add(chromium.ask(colours))
    assert len(seen) == 6
    first = chromium.ask("by('numbers').textContent")
    chromium.ask("by('tokens').focus()")
    chromium.press("ArrowRight")
    assert chromium.ask("by('numbers').textContent") != first
    assert chromium.ask(AT) == 1
    chromium.press("End")
    assert chromium.ask(AT) == chromium.ask("document.querySelectorAll('#tokens bdi').length") - 1
    assert chromium.ask(AT) <= 1999
    before = chromium.ask("by('response').value")
    chromium.ask("document.querySelector('#others button:not(.now)').click()")
    assert chromium.ask("by('response').value") != before
    chromium.ask("document.getElementById('tab-step').click()")
    chromium.ask("document.querySelector('a[data-row]').click()")
    assert chromium.ask(OPEN) == ["token"]
    row = chromium.ask("document.querySelector('a[data-row]').dataset.row")
    assert chromium.ask("by('response').value") == row
    quiet(chromium, page)


def test_a_curve_tells_its_numbers(chromium, pages):
    chromium.open(pages["long"])
    chromium.ask("document.querySelectorAll('.chart')[1].focus()")
    chromium.press("ArrowLeft")
    told = chromium.ask("document.querySelectorAll('.chart output')[1].textContent")
    assert told.startswith("step 99")
    assert chromium.ask("[...document.querySelectorAll('.chart output')].every("
                        "o => o.textContent.startsWith('step'))")  # fmt: skip
    chromium.ask("document.activeElement.blur()")
    now = "document.querySelectorAll('.chart output')[1]"
    assert chromium.ask(f"{now}.textContent === {now}.dataset.now")
    quiet(chromium, pages["long"])


def test_without_scripts_all_of_trend_and_step_is_there(chromium, pages):
    chromium.open(pages["small"], scripts=False)
    chromium.call("Emulation.setScriptExecutionDisabled", {"value": False})
    assert chromium.ask(OPEN) == ["trend", "step", "token"]
    assert chromium.ask("document.querySelectorAll('section.step').length") == 2
    assert "JavaScript, which is disabled" in chromium.ask("document.body.textContent")


def test_what_was_chosen_outlives_a_reload(chromium, tmp_path):
    run = made_up_report_run(tmp_path / "going", finished=False)
    with locked(run):
        page, _ = command.write(RunFolder(run), None, 1)
    chromium.open(page)
    chromium.ask("document.getElementById('tab-token').click(); by('shade').value = 'entropy';"
                 "by('shade').dispatchEvent(new Event('change'))")  # fmt: skip
    chromium.wait()
    assert chromium.ask(OPEN) == ["token"]
    assert chromium.ask("by('shade').value") == "entropy"


@pytest.mark.parametrize("width", [1280, 400])
@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("name", RUNS)
def test_it_fits_its_window(chromium, pages, name, dark, width):
    chromium.open(pages[name], width=width, dark=dark)
    for tab in ("trend", "step", "token"):
        chromium.ask(f"document.getElementById('tab-{tab}').click()")
        assert chromium.ask("document.documentElement.scrollWidth") <= width
        if folder := os.environ.get("REPORT_PICTURES"):
            theme = "dark" if dark else "light"
            chromium.picture(Path(folder) / f"{name}-{tab}-{width}-{theme}.png", whole=True)
    ground = chromium.ask("getComputedStyle(document.body).backgroundColor")
    assert ground == ("rgb(20, 23, 29)" if dark else "rgb(255, 255, 255)")
    quiet(chromium, pages[name])
