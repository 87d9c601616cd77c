"""The slider of a trace's page: the advantages and returns of `gae` at another lambda."""

from rlzoo_lab.diagnose.trace.trace import Trace
from rlzoo_lab.view.page import beside, data_block

SLIDER = (
    '<p class="screen"><label>lambda <input type="range" id="lam" min="0" max="1" step="0.01" '
    'value="{lam}"></label> <output id="lam-now">{lam:g}</output> '
    '<span class="muted">moves advantage and return; whitening needs the whole batch</span></p>'
)


def slider(traced: Trace) -> tuple[str, str]:
    """Its HTML and script; nothing for several estimators, for another one, or if numbers are
    missing."""
    columns, credits = traced.columns, traced.credits
    if [c.name for c in credits] != ["gae"] or not {"rewards", "values"} <= columns.keys():
        return "", ""
    options = credits[0].options
    numbers = {name: [x or 0.0 for x in columns[name]] for name in ("rewards", "values")}
    mask = [token.action for token in traced.tokens]
    fixed = {"mask": mask, "end": traced.bootstrap or 0.0, "gamma": options["gamma"]}
    return SLIDER.format(lam=options["lam"]) + data_block("data", numbers | fixed), beside(
        __file__, "slider.js"
    )[0]
