"""The page docs/playground.html: its scripts, its style, and data about the zoo's components.

The scripts come after the arithmetic of `rlzoo_lab.view`. Tests compare both with the zoo's
components, `rlzoo trace` and the oracle.

    world.js      a world of three tokens: exact advantages, bias and variance
    state.js      the user's choices, and their encoding in the URL
    parts.js      sliders, and numbers that show their arithmetic
    charts.js     points to drag, bars and curves
    credit.js     the numbers of the first view
    response.js, worlds.js, groups.js   the three views
    start.js      tabs, links and the first drawing
"""

from pathlib import Path
from typing import Any

from rlzoo.plugin.component import Component
from rlzoo.plugin.registry import Zoo
from rlzoo_lab.view import page as html

HERE = Path(__file__).parent
SCRIPTS = ("advantage", "derive", "world", "state", "parts", "charts", "credit", "response",
           "worlds", "groups", "start")  # fmt: skip
KINDS = ("estimators", "policy_losses", "kl_penalties")
TITLE = "rlzoo playground"

_BODY = """
<p class="muted"><a href="README.md">the docs of rlzoo</a> <span>· move a slider, drag a point or
type a number; click a number to see how it is computed</span></p> <noscript><p class="warn">This
page computes in the browser, so it needs JavaScript.</p></noscript> <div class="tabs"
role="tablist" aria-label="views" id="tabs"></div> <main role="tabpanel" id="view" tabindex="-1">
<form class="controls" id="controls"></form> <div class="layout"> <div id="body"></div> <div
class="side"> <details id="try" open><summary>Try this</summary> <ol> <li><a
href="#lam=0&amp;show=advantage.0">lam = 0</a>: each token gets its own surprise, delta.</li>
<li><a href="#lam=1&amp;show=advantage.0">lam = 1</a>: each gets what came minus what the critic
expected, 1 - V.</li> <li><a href="#lam=0&amp;values=0.3,0,0.6&amp;show=advantage.0">A critic that
errs</a> at token 1 misjudges token 0. Move lam to 1: A_0 is 0.7 again.</li> </ol></details>
<section id="panel" aria-labelledby="panel-title"><h2 id="panel-title">Arithmetic</h2> <div
id="arithmetic" aria-live="polite"></div></section> </div> <form class="controls"
id="more"></form> <div id="rest"></div> </div> </main> <p class="foot"><a id="link" href="#">link
to this view</a> <button type="button" id="again">reset</button></p>
"""


def page(zoo: Zoo) -> str:
    """The whole document, with the components of the zoo."""
    css = (HERE / "page.css").read_text(encoding="utf-8")
    scripts = [(HERE / f"{name}.js").read_text(encoding="utf-8") for name in SCRIPTS]
    touch, _ = html.touch()
    blocks = [_BODY.strip(), html.data_block("data", declared(zoo))]
    return html.page(TITLE, blocks, css, script="\n".join([*scripts[:2], touch, *scripts[2:]]))


def declared(zoo: Zoo) -> dict[str, dict[str, Any]]:
    """kind -> component -> its formula, and the range and default of its options."""
    return {
        kind: {
            c.name: {"summary": c.summary, "options": _options(c)}
            for c in zoo.shelves[kind].values()
            if c.function.__module__.startswith("rlzoo_zoo.")
        }
        for kind in KINDS
    }


def _options(component: Component) -> dict[str, dict[str, Any]]:
    """The options with a number for default, as a slider needs them."""
    found = {}
    for option in component.options.values():
        if isinstance(option.default, int | float) and not isinstance(option.default, bool):
            interval = option.range
            found[option.name] = {
                "default": option.default,
                "low": interval.low if interval else None,
                "high": interval.high if interval else None,
                "whole": option.type is int,
            }
    return found
