"""The notebook of the docs runs in a kernel: shown while it trains, looked at, stopped, gone on
with. Its cells are those of docs/first-half-hour.ipynb, with smaller sizes."""

import ast
import importlib.util
import re

import pytest

from helpers import ROOT
from rlzoo.cli import every_verb

nbformat = pytest.importorskip("nbformat")
pytest.importorskip("nbclient")
pytest.importorskip("ipykernel")

NOTEBOOK = ROOT / "docs" / "first-half-hour.ipynb"
SMALLER = {
    "steps, samples, prompts = 24, 256, 16": "steps, samples, prompts = 2, 16, 2",
    '"task=spelling",': '"task=spelling", "run.threads=1",',
    "horizon=4, vocabulary=4, batches=[16, 256]": "horizon=3, vocabulary=3, batches=[16]",
    "prompts=64": "prompts=4",
}
STOPPED = """
import os, signal
from rlzoo_lab.api.notebook import Notebook

class Impatient(Notebook):
    def step(self, line, progress):
        super().step(line, progress)
        os.kill(os.getpid(), signal.SIGINT)  # what the stop button sends

with Impatient() as shown:
    rlzoo.run("grpo", [*small, "train.steps=500", "run.dir=runs/stopped"], display=shown)
"""
MORE = [
    (STOPPED, ["raises-exception"]),
    ("rlzoo.load_run('runs/stopped')", []),
    ("rlzoo.run('ppo_gae', ['estimator.lam=7'])", ["raises-exception"]),
    ("import sys; 'ipywidgets' in sys.modules", []),
]  # fmt: skip


def runner():
    spec = importlib.util.spec_from_file_location("run_notebook", ROOT / "docs" / "run_notebook.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def code_cells(book):
    return [cell for cell in book.cells if cell.cell_type == "code"]


def htmls(cell, kind):
    """What a cell shows: of display_data or execute_result."""
    return [o.data.get("text/html", "") for o in cell.outputs if o.output_type == kind]


def verb_of(cell):
    """The last call in a cell of a function or of a run's method."""
    return (re.findall(r"(?:rlzoo|gae)\.(\w+)\(", cell.source) or [""])[-1]


def test_the_notebook_is_committed_as_it_ran():
    book = nbformat.read(NOTEBOOK, as_version=4)
    text = NOTEBOOK.read_text(encoding="utf-8")
    assert len(text) < 250_000
    assert "/tmp" not in text
    assert [cell.execution_count for cell in code_cells(book)] == list(
        range(1, len(code_cells(book)) + 1)
    )
    for cell in code_cells(book):
        assert [
            o for o in cell.outputs if o.output_type == "error" or o.get("name") == "stderr"
        ] == []
    assert sum(bool(cell.outputs) for cell in code_cells(book)) >= 10
    assert "finished in" in text


def test_its_links_lead_somewhere():
    book = nbformat.read(NOTEBOOK, as_version=4)
    links = re.findall(r"\]\(([\w.-]+)\)", "".join(c.source for c in book.cells))
    assert len(links) >= 5
    assert [link for link in links if not (NOTEBOOK.parent / link).is_file()] == []


@pytest.mark.landing
@pytest.mark.process
def test_the_notebook_runs_in_a_kernel(tmp_path, monkeypatch):
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    book = runner().executed(tmp_path, SMALLER, MORE)
    own, more = code_cells(book)[: -len(MORE)], code_cells(book)[-len(MORE) :]

    shown = [page for cell in own for page in htmls(cell, "display_data") if page]
    assert len(shown) == 2, "one output for each run that is shown, drawn again in its place"
    assert all("finished in" in page and "<svg" in page and "loading" not in page for page in shown)

    found = {verb_of(c): htmls(c, "execute_result") for c in own if htmls(c, "execute_result")}
    assert {"trace", "compare", "diagnose", "evaluate"} <= set(found)
    pages = [page for name in ("trace", "compare", "diagnose", "evaluate") for page in found[name]]
    assert all(page.startswith(("<pre", "<div")) for page in pages)
    (run,) = [htmls(c, "execute_result")[0] for c in own if c.source == "gae"]
    assert "<svg" in run
    assert "held-out score" in run
    assert run.count("<tr") >= 6
    assert [o for c in own for o in c.outputs if "image/png" in o.get("data", {})]
    assert [o.text for c in own for o in c.outputs if o.get("name") == "stderr"
            and "still loading" not in o.text] == []  # fmt: skip

    stopped, loaded, wrong, widgets = more
    assert "step 1; stopped after step 1; rlzoo.resume(" in htmls(stopped, "display_data")[0]
    (error,) = [o for o in stopped.outputs if o.output_type == "error"]
    assert error.ename == "Stopped"  # a KeyboardInterrupt, with the status of a process
    assert error.traceback == [
        "stopped after step 1; rlzoo.resume('runs/stopped') continues the run"
    ]
    assert "unfinished, 1 step" in loaded.outputs[0].data["text/plain"]
    (error,) = wrong.outputs
    assert error.traceback == [
        "RecipeError: estimator.lam (command line): must be a float in [0, 1]. Got 7"
    ]
    assert widgets.outputs[0].data["text/plain"] == "False"


# ---------------------------------------------------------------- what the docs import

# The faces that docs/plugin-authors.md lists, and those of the tools for looking inside.
FACES = {"rlzoo", "rlzoo.ops", "rlzoo.errors", "rlzoo.data", "rlzoo.lm", "rlzoo.checks",
         "rlzoo.env", "rlzoo.oracle", "rlzoo.recipe"}  # fmt: skip


def imported(code):
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""


def pieces():
    """(where, code) of all Python in the docs."""
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        if page.is_file():
            blocks = re.findall(r"^```python[^\n]*\n(.*?)^```$", page.read_text(encoding="utf-8"),
                                re.MULTILINE | re.DOTALL)  # fmt: skip
            yield from ((page.name, block) for block in blocks)
    for path in sorted((ROOT / "docs" / "examples").glob("*.py")):
        yield path.name, path.read_text(encoding="utf-8")
    for cell in code_cells(nbformat.read(NOTEBOOK, as_version=4)):
        yield NOTEBOOK.name, re.sub(r"^%%.*\n", "", cell.source)


def test_no_page_imports_what_is_internal():
    found = [(where, name) for where, code in pieces() for name in imported(code)]
    of_ours = {(where, name) for where, name in found if name.split(".")[0] == "rlzoo"}
    assert len(of_ours) > 15
    assert {(where, name) for where, name in of_ours if name not in FACES} == set()


def test_verbs_that_the_python_page_leaves_out_are_known():
    import rlzoo

    missing = {name for name in every_verb() if name not in rlzoo.__all__}
    assert missing <= {"plugins", "recipes", "show", "model", "eval",
                       "report", "help", "import", "serve",
                       "play"}  # fmt: skip
