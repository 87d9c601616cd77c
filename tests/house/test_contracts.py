"""The contracts of .importlinter hold, and have teeth: each planted import breaks its contract."""

import ast
import configparser
import os
import re
import shutil
import subprocess
import sys
from fnmatch import fnmatch
from itertools import takewhile
from pathlib import Path

import pytest

import rlzoo
from rlzoo.cli.verb import Verb
from rlzoo_lab import table

ROOT = Path(rlzoo.__file__).parent.parent
LINT = """
import sys
from importlinter.cli import lint_imports
for _ in sys.stdin:
    lint_imports(cache_dir=None)
    print("END", flush=True)
"""

FLOORS = "Imports go down the floors only"
CIRCLES = "No circle among packages or modules"
VERBS = "Verbs do not know each other"
BLIND = "The core knows neither zoo nor lab nor bridges"
LAB = "What verbs share lies below them"
DOORS = "The lab imports a list of core modules"
STRANGER = "The zoo comes in by a stranger's path"
BRIDGES = "A trainer is known to its own bridge alone"
STUDIES = "A study makes blocks: the view prints and draws them"
PURE = "Statistics are numbers in, numbers out"
READING = "What reads a run needs no model"

pytestmark = pytest.mark.process  # lint-imports, as a command

GAE = "plugins/rlzoo_zoo/estimators/gae.py"
PLANTS = [
    (FLOORS, "rlzoo/ops.py", "from rlzoo.plugin.columns import COLUMNS"),
    (FLOORS, "rlzoo/mdp/noise.py", "def f():\n    from rlzoo.train import loop  # inside, too"),
    (FLOORS, "rlzoo/format/numbers.py", "import rlzoo.plugin.border  # beside it"),
    (FLOORS, "rlzoo/elsewhere/__init__.py", '"""A package on no floor."""'),
    (CIRCLES, "rlzoo/recipe/keys.py", "from rlzoo.recipe import compose"),
    (CIRCLES, "rlzoo/mdp/batch.py", "def f():\n    from rlzoo.accel import passes"),
    (VERBS, "plugins/rlzoo_lab/doctor/rules.py", "from rlzoo_lab.compare.eval import pass_at_k"),
    (
        VERBS,
        "plugins/rlzoo_lab/compare/sweep/plan.py",
        "from rlzoo_lab.diagnose import trace",
    ),
    (VERBS, "plugins/rlzoo_lab/compare/eval/command.py", "from rlzoo_lab.compare import verdict"),
    (VERBS, "plugins/rlzoo_lab/diagnose/exact.py", "from rlzoo_lab.diagnose.trace import explain"),
    (VERBS, "plugins/rlzoo_lab/doctor/series.py", "from rlzoo_lab.compare.sweep import plan"),
    (BLIND, "rlzoo/train/loop.py", "def f():\n    from rlzoo_zoo.estimators import gae"),
    (BLIND, "rlzoo/cli/__init__.py", "def f():\n    from rlzoo_bridges import command"),
    (BLIND, "rlzoo/cli/run/lines.py", "def f():\n    from rlzoo_lab.compare import verdict"),
    (DOORS, "plugins/rlzoo_lab/diagnose/trace/make.py", "from rlzoo.accel.decode import decode"),
    (DOORS, "plugins/rlzoo_lab/diagnose/trace/make.py", "import rlzoo.registration  # in no list"),
    (DOORS, "plugins/rlzoo_lab/diagnose/trace/make.py", "from rlzoo_zoo.estimators import gae"),
    (LAB, "plugins/rlzoo_lab/kit/oracle/tree.py", "from rlzoo_lab.diagnose import exact"),
    (LAB, "plugins/rlzoo_lab/view/html.py", "def f():\n    from rlzoo_lab.compare import verdict"),
    (LAB, "plugins/rlzoo_lab/view/blocks.py", "from rlzoo_lab.data.record import Record"),
    (STUDIES, "plugins/rlzoo_lab/compare/tables.py", "def f():\n    from rich.table import Table"),
    (STUDIES, "plugins/rlzoo_lab/diagnose/trace/tables.py", "from html import escape"),
    (STUDIES, "plugins/rlzoo_lab/doctor/report/trend.py", "def f():\n    import matplotlib.pyplot"),
    (PURE, "plugins/rlzoo_lab/stats/means.py", "from rlzoo.runs.folder import RunFolder"),
    (PURE, "plugins/rlzoo_lab/stats/signs.py", "from pathlib import Path"),
    (BRIDGES, "plugins/rlzoo_bridges/columns.py", "def f():\n    import verl"),
    (STRANGER, GAE, "from rlzoo.mdp.batch import Batch"),
    (STRANGER, GAE, "from rlzoo.lm.loading import load_causal_lm  # below the face"),
    (READING, "plugins/rlzoo_lab/compare/tables.py", "def f():\n    from rlzoo.mdp import batch"),
    (READING, "rlzoo/runs/folder.py", "def f():\n    import torch"),
]


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    place = tmp_path_factory.mktemp("house")
    for folder in ("rlzoo", "plugins"):
        shutil.copytree(ROOT / folder, place / folder,
                        ignore=shutil.ignore_patterns("__pycache__", "configs"))  # fmt: skip
    shutil.copy(ROOT / ".importlinter", place)
    return place


@pytest.fixture(scope="module")
def broken(copy):
    """The contracts that the tree breaks by now, as lint-imports says in a process of its own."""
    environment = {**os.environ, "PYTHONPATH": f"{copy}:{copy / 'plugins'}", "COLUMNS": "200"}
    with subprocess.Popen([sys.executable, "-c", LINT], cwd=copy, env=environment, text=True,
                          stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:  # fmt: skip

        def lint():
            process.stdin.write("\n")
            process.stdin.flush()
            out = "".join(takewhile("END\n".__ne__, process.stdout))
            verdicts = re.findall(r"^(.*?) (KEPT|BROKEN)\b", out, re.MULTILINE)
            assert len(verdicts) == 11, out
            return {name for name, verdict in verdicts if verdict == "BROKEN"}

        yield lint
        assert lint() == set(), "every plant is taken back"
        process.stdin.close()


def test_the_contracts_hold(broken):
    assert broken() == set()


@pytest.mark.parametrize(("contract", "file", "line"), PLANTS)
def test_a_planted_import_breaks_its_contract(copy, broken, contract, file, line):
    path = copy / file
    before = path.read_text(encoding="utf-8") if path.is_file() else None
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"{before or ''}\n{line}\n", encoding="utf-8")
    try:
        assert contract in broken()
    finally:
        if before is None:
            shutil.rmtree(path.parent)
        else:
            path.write_text(before, encoding="utf-8")


def test_every_verb_is_in_the_contract_of_verbs():
    config = configparser.ConfigParser()
    config.read(ROOT / ".importlinter")
    listed = config["importlinter:contract:verbs"]["modules"].split()
    homes = {verb.module for verb in vars(table).values() if isinstance(verb, Verb)} - {""}
    outside = {home for home in homes if not any(fnmatch(home + ".", f"{x}.*") for x in listed)}
    assert outside == {"rlzoo_lab.kit.command", "rlzoo_lab.kit.new"}, "shared by other verbs"


def imports(text):
    """(module, name) of each import of rlzoo in a source."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom) and f"{node.module}.".startswith("rlzoo."):
            yield from ((node.module, alias.name) for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from ((n.name, "") for n in node.names if f"{n.name}.".startswith("rlzoo."))


def test_plugins_import_what_the_page_for_their_authors_lists():
    """The zoo, what `rlzoo new` writes, and the examples of the docs."""
    page = (ROOT / "docs" / "plugin-authors.md").read_text(encoding="utf-8")
    public, module = set(), ""
    for line in page.splitlines():
        if line.startswith("### "):
            module = line.removeprefix("### ").strip("`")
            public.add(tuple(module.split(".")) if "." in module else (module, ""))
        if line.startswith("|`"):
            public |= {(module, name) for name in re.findall(r"`(\w+)`", line.split("|")[1])}
    folders = ("plugins/rlzoo_zoo", "plugins/rlzoo_lab/kit/templates", "docs/examples")
    files = [p for f in folders for p in (ROOT / f).rglob("*.py*") if "pycache" not in str(p)]
    assert len(files) > 100
    strange = set()
    for path in files:
        text = path.read_text(encoding="utf-8")
        if path.suffix == ".txt":  # a template: its imports alone are sure to be Python
            text = "\n".join(re.findall(r"^(?:from|import) .*$", text, re.MULTILINE))
        strange |= {(path.name, *pair) for pair in imports(text) if pair not in public}
    assert strange == set()
