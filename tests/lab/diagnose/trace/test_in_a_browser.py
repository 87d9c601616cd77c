"""The page of a trace in a browser: a token shows its row."""

import pytest

from helpers.browser import CHROMIUM, browser
from rlzoo.cli import parse
from rlzoo_lab.diagnose.trace import command

pytestmark = [pytest.mark.landing, pytest.mark.skipif(CHROMIUM is None, reason="no chromium")]

NUMBERS = ("--rewards", "0.1,0,-0.2,0,1", "--values", "0.3,0.4,0.9,0.6,0.8", "--bootstrap", "0.5",
           "--response-mask", "1,1,0,1,1", "--gamma", "0.9", "--tokens", "a,b,<i>,d,e")  # fmt: skip


@pytest.fixture(scope="module")
def chromium():
    with browser() as driver:
        yield driver


@pytest.fixture
def opened(chromium, tmp_path):
    def go(*words, **how):
        file = tmp_path / "trace.html"
        command.run(parse(["trace", *NUMBERS, *words])).files["html"](file)
        chromium.open(file, **how)
        return file

    return go


def quiet(driver, file):
    assert driver.said == []
    assert driver.requests == [file.resolve().as_uri()]


def test_a_token_shows_its_row(chromium, opened):
    file = opened("--lam", "0.5")
    shown = "document.getElementById('row-of')"
    assert chromium.ask(f"{shown}.hidden")
    chromium.ask("document.querySelector('.tokens a[href=\"#t-4\"]').focus()")
    assert "t 4" in chromium.ask(f"{shown}.textContent")
    assert "reward 1" in chromium.ask(f"{shown}.textContent")
    assert chromium.ask("document.querySelector('tr.on').id") == "t-4"
    chromium.ask("document.activeElement.blur()")
    assert chromium.ask(f"{shown}.hidden")
    token = "document.querySelector('.tokens a[href=\"#t-2\"]')"
    chromium.ask(f"{token}.dispatchEvent(new MouseEvent('mouseenter'))")
    assert "<i>" in chromium.ask(f"{shown}.textContent")
    quiet(chromium, file)


def test_without_scripts_all_is_there(chromium, opened):
    opened("--lam", "0.5", scripts=False)
    chromium.call("Emulation.setScriptExecutionDisabled", {"value": False})
    assert chromium.ask("document.querySelectorAll('tbody tr').length") == 6
