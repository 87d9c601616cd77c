"""The page in a browser: every control moved, an empty console, nothing fetched, links that hold.

Pictures go to `$PLAY_PICTURES` where that is set.
"""

import json
import os
import re
import shlex
import time
from pathlib import Path

import pytest

from helpers import ROOT
from helpers.browser import CHROMIUM, browser
from playground import page
from rlzoo.cli import parse
from rlzoo_lab.diagnose.trace import command

pytestmark = [pytest.mark.landing, pytest.mark.skipif(CHROMIUM is None, reason="no chromium")]

VIEWS = ("response", "world", "groups")
# What a reader can see and set: texts, and the values of all fields.
SEEN = """(() => by("view").innerText + [...document.querySelectorAll("input, select")]
  .map(x => x.id + (x.type === "checkbox" ? x.checked : x.value)).join())()"""
MOVE = """
function move(id) {
  const control = by(id);
  const event = kind => control.dispatchEvent(new Event(kind, { bubbles: true }));
  if (control.tagName === "SELECT") {
    control.selectedIndex = (control.selectedIndex + 1) % control.options.length;
    event("change");
  } else if (control.tagName === "BUTTON" || control.type === "checkbox") control.click();
  else if (control.type === "text") { control.value = "0, 0.5"; event("input"); }
  else if (control.tagName === "INPUT") {
    const x = Number(control.value), step = Number(control.step) || 0.1;
    const whole = Number.isInteger(Number(control.step)) || /^(turns|group|option-n)/.test(id);
    control.value = x + (whole ? 1 : step);
    if (Number(control.value) === x || Number(control.value) > 1 && /gamma|lam/.test(id)) {
      control.value = x - step;
    }
    event("input");
  } else {
    control.focus();
    control.dispatchEvent(new KeyboardEvent("keydown", { key: "ArrowUp", bubbles: true }));
  }
}
const FOLLOWED = /^(option-(gamma|lam)|rewards|values|drag|estimator|p$|critic|task|scores|flip)/;
const controls = () => [...document.querySelectorAll(
  "#view select, #view input, #view button, #view .handle")].map(x => x.id);
const shown = () => by("body").innerHTML + by("rest").innerHTML;
// The faults after each control was moved, one at a time from the start.
function faults(start) {
  follow(start);
  const found = [];
  for (const id of controls()) {
    follow(start);
    if (id === "case" || id === `number-${state.show}`) continue;
    const before = linkOf(), drawn = shown();
    move(id);
    const link = linkOf();
    if (link === before || by("link").getAttribute("href") !== link) found.push(`${id}: link`);
    if (shown() === drawn && FOLLOWED.test(id)) found.push(`${id}: nothing follows`);
    if (/NaN|undefined|Infinity|object/.test(by("view").textContent)) found.push(`${id}: text`);
  }
  return found;
}
"""


@pytest.fixture(scope="module")
def chromium():
    with browser() as driver:
        yield driver


@pytest.fixture(scope="module")
def written(zoo, tmp_path_factory):
    file = tmp_path_factory.mktemp("play") / "play.html"
    file.write_text(page(zoo), encoding="utf-8")
    return file


def go(driver, link):
    """Follow a link, "#view=world" for example."""
    driver.ask(f"follow({json.dumps(link)})")


def opened(driver, file, **how):
    driver.open(file, **how)
    driver.ask(MOVE)


def quiet(driver, file):
    assert driver.said == []
    assert driver.requests == [file.resolve().as_uri()]


# Links under which each control is there.
STARTS = {
    "response": ["#", "#estimator=grpo&loss=sapo&coef=0.1", "#estimator=n_step&loss=ppo_dual_clip",
                 "#whiten=1&place=loss&coef=0.1&kl=k3&loss=gspo",
                 "#case=recompute&estimator=turn_gae&loss=gmpo&turns=0,0,0,1,1,1"],
    "world": ["#view=world", "#view=world&estimator=rloo&critic=zero&task=dense"],
    "groups": ["#view=groups", "#view=groups&scores=0.5,0,2,0"],
}  # fmt: skip


@pytest.mark.parametrize("view", VIEWS)
def test_every_control_moves_something(chromium, written, view):
    opened(chromium, written)
    for start in STARTS[view]:
        go(chromium, start)
        found = chromium.ask("controls()")
        assert "" not in found
        assert len(found) == len(set(found)) > 20
        assert chromium.ask(f"faults('{start}')") == []
    quiet(chromium, written)


def test_each_case_is_another_response(chromium, written):
    opened(chromium, written)
    seen = set()
    for case in chromium.ask("Object.keys(CASES)"):
        chromium.ask(f"by('case').value = '{case}'; by('case').dispatchEvent(new Event('change'))")
        seen.add(chromium.ask(SEEN))
        assert chromium.ask("state.view") == "response"
    assert len(seen) == chromium.ask("Object.keys(CASES).length")
    quiet(chromium, written)


@pytest.mark.parametrize("view", VIEWS)
def test_the_address_holds_the_state(chromium, written, view):
    opened(chromium, written)
    for start in STARTS[view]:
        go(chromium, start)
        chromium.ask("""controls().filter(id => !/^(case|longer|shorter|number-)/.test(id))
          .filter((_, i) => i % 3 === 0).forEach(id => by(id) && move(id))""")
        before = chromium.ask(SEEN)
        time.sleep(0.2)  # the address follows a moment later
        chromium.call("Page.reload")
        chromium.wait()
        chromium.ask(MOVE)
        assert chromium.ask(SEEN) == before
        assert chromium.ask("decodeURIComponent(location.hash)") == chromium.ask(
            "decodeURIComponent(linkOf())"
        )
    assert chromium.said == []


def test_a_link_with_nonsense_is_the_start(chromium, written):
    opened(chromium, written)
    start = chromium.ask(SEEN)
    for link in ("#view=x&lam=y&rewards=1,,z&mask=a&scores=1&show=../<b>&__proto__=1&p=",
                 "#estimator=constructor&loss=toString&gamma=&end=Infinity"):  # fmt: skip
        go(chromium, link)
        assert chromium.ask(SEEN) == start
    quiet(chromium, written)


def test_a_slider_is_not_taken_from_the_hand(chromium, written):
    opened(chromium, written)
    for id_ in ("option-lam", "coef", "option-clip_low", "estimator"):
        chromium.ask(f"window.kept = by('{id_}'); kept.focus()")
        chromium.ask(f"move('{id_}')")
        same = "kept === by('{0}')" if id_ != "estimator" else "true"
        assert chromium.ask(same.format(id_))
        assert chromium.ask("document.activeElement.id") == id_


def test_a_point_is_dragged(chromium, written):
    opened(chromium, written)
    box = chromium.ask("(() => { const b = by('drag-values-1').getBoundingClientRect();"
                       "return [b.x + b.width / 2, b.y + b.height / 2]; })()")  # fmt: skip
    advantage = chromium.ask("by('number-advantage.0').textContent")

    def mouse(kind, y):
        at = {"type": kind, "x": box[0], "y": y}
        chromium.call("Input.dispatchMouseEvent", {**at, "button": "left", "buttons": 1})

    mouse("mousePressed", box[1])
    mouse("mouseMoved", box[1] + 20)
    mouse("mouseMoved", box[1] + 40)
    mouse("mouseReleased", box[1] + 40)
    assert chromium.ask("state.values[1]") < 0.8
    assert chromium.ask("by('values-1').value === String(state.values[1])")
    assert chromium.ask("by('number-advantage.0').textContent") != advantage
    quiet(chromium, written)


def test_the_keyboard_reaches_everything_and_everything_has_a_name(chromium, written):
    opened(chromium, written)
    chromium.ask("by('tab-response').focus()")
    keys = {"world": "ArrowRight", "groups": "End", "response": "Home"}
    for view, key in keys.items():
        chromium.press(key)
        assert chromium.ask("document.activeElement.id") == f"tab-{view}"
        assert chromium.ask("state.view") == view
    named = """[...document.querySelectorAll("input, select, button, .handle, [role=region]")]
      .filter(x => !(x.ariaLabel || x.textContent.trim() || (x.labels && x.labels.length)))
      .map(x => x.id || x.outerHTML)"""
    for view in VIEWS:
        go(chromium, f"#view={view}")
        assert chromium.ask(named) == []
    go(chromium, "#")
    chromium.ask("by('drag-values-0').focus()")
    before = chromium.ask("state.values[0]")
    chromium.press("ArrowUp")
    chromium.press("ArrowUp")
    assert chromium.ask("state.values[0]") == pytest.approx(before + 0.1)
    assert chromium.ask("document.activeElement.id") == "drag-values-0"


@pytest.mark.parametrize("estimator", ["gae", "n_step", "reinforce", "rloo", "maxrl"])
def test_the_command_below_gives_the_same_numbers(zoo, chromium, written, estimator):
    opened(chromium, written)
    for case in chromium.ask("Object.keys(CASES)"):
        go(chromium, f"#estimator={estimator}&lam=0.5")
        # KL as typed in the command has six digits.
        chromium.ask(
            f"startFrom('{case}'); state.estimator = '{estimator}';state.whiten = 1; update()"
        )
        words = shlex.split(chromium.ask("by('command').textContent").replace("\\\n", " "))
        assert words[:2] == ["rlzoo", "trace"]
        arguments = parse(words[1:])
        columns = command.trace(arguments, zoo).credits[0].columns
        shown = chromium.ask("computeResponse()")
        for name, mine in (("raw_advantages", "raw"), ("advantages", "advantages")):
            pairs = zip(shown[mine], columns.get(name, columns["advantages"]), strict=True)
            own = [pair for pair, on in zip(pairs, chromium.ask("state.mask"), strict=True) if on]
            assert all(a == pytest.approx(b, abs=1e-4) for a, b in own)


# Question of docs/questions.md -> what the page shows under its link.
ANSWERS = {
    "A worked example": "A_0 = delta_0 + gamma * lam * A_1 = 0.02 + 1 * 0.95 * 0.0641975",
    "Does V(0) contain r(0)?": "delta_0 = r_0 + gamma * V_1 - V_0 = 0.49 + 1 * 0.88 - 0.85 = 0.52",
    "Why is the advantage not just delta?": "A_0 = delta_0 = 0",
    "What does lambda trade?": "b_perp",
    "What is bootstrapping, and what happens at the last token?":
        "delta_2 = r_2 + gamma * V_3 - V_2 = 0 + 1 * 0.7 - 0.6 = 0.1",
    "What is whitening for, and why are returns computed before it?": "whitened_5 = ",
    "Why do GRPO and RLOO give every token the same number?":
        "A_t = (R_0 - mean_g) / std_g = (1 - 0.5) / 0.707108 = 0.707106",
}  # fmt: skip


@pytest.mark.parametrize("page_of_questions", ["questions.md", "questions.zh.md"])
def test_questions_open_the_page_at_their_answer(chromium, written, page_of_questions):
    text = (ROOT / "docs" / page_of_questions).read_text(encoding="utf-8")
    links = re.findall(r"\]\(playground\.html(#[^)]*)\)", text)
    assert len(links) == len(ANSWERS)
    if page_of_questions == "questions.md":
        sections = re.split(r"^## ", text, flags=re.MULTILINE)
        with_link = [x.splitlines()[0] for x in sections if "(playground.html#" in x]
        assert with_link == list(ANSWERS)
    opened(chromium, written)
    for link, answer in zip(links, ANSWERS.values(), strict=True):
        go(chromium, link)
        shown = chromium.ask("by('arithmetic').innerText")
        assert answer in shown
        assert chromium.ask("document.querySelector('.mine') !== null"), link
    quiet(chromium, written)


@pytest.mark.parametrize(("width", "height"), [(1280, 720), (1366, 768), (400, 720)])
def test_slider_points_and_bars_are_on_one_screen(chromium, written, width, height):
    opened(chromium, written, width=width, height=height)
    for case in chromium.ask("Object.keys(CASES)"):
        go(chromium, f"#case={case}")
        ends = chromium.ask("""['case', 'estimator', 'inputs', 'outputs'].map(
          id => by(id).getBoundingClientRect().bottom)""")
        assert max(ends) <= height, case
    go(chromium, "#")
    chromium.ask("by('try').open = true")
    steps = chromium.ask("[...document.querySelectorAll('#try a')].map(x => x.hash)")
    found = []
    for step in steps:
        go(chromium, step)
        found.append(chromium.ask("by('number-advantage.0').textContent"))
    assert found == ["0.1", "0.7", "\u22120.3"]
    go(chromium, steps[2].replace("lam=0", "lam=1"))  # as its text says
    assert chromium.ask("by('number-advantage.0').textContent") == "0.7"
    quiet(chromium, written)


@pytest.mark.parametrize("width", [1280, 400])
@pytest.mark.parametrize("dark", [False, True])
def test_it_fits_its_window(chromium, written, dark, width):
    opened(chromium, written, width=width, dark=dark)
    for view in VIEWS:
        go(chromium, f"#view={view}")
        assert chromium.ask("document.documentElement.scrollWidth") <= width
        if folder := os.environ.get("PLAY_PICTURES"):
            theme = "dark" if dark else "light"
            chromium.picture(Path(folder) / f"{view}-{width}-{theme}.png", whole=True)
    ground = chromium.ask("getComputedStyle(document.body).backgroundColor")
    assert ground == ("rgb(20, 23, 29)" if dark else "rgb(255, 255, 255)")
    quiet(chromium, written)
