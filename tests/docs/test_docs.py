"""The docs are executed: their code runs, their commands parse, their tables are the code's."""

import json
import os
import re
import shlex
import shutil
from pathlib import Path

import pytest
import torch

import rlzoo
from helpers import ROOT
from helpers.scripts import script
from rlzoo.cli import every_verb, main, parse
from rlzoo.plugin.component import KINDS
from rlzoo.recipe.compose import compose
from rlzoo_lab.api.show import plan_without_data
from rlzoo_lab.kit import checks
from rlzoo_lab.kit.checks.made_up import made_up

DOCS = ROOT / "docs"
NO_PLUGINS = {"one_file", "invariance", "vectors"}
EXAMPLES = sorted(p for p in (DOCS / "examples").glob("*.py") if p.stem not in NO_PLUGINS)
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.glob("*.md"))]
ALL_PAGES = [*PAGES, *sorted(DOCS.glob("*/**/*.md"))]
FENCE = re.compile(
    r"^(?P<mark><!-- executed -->\n)?```(?P<kind>\w+)(?P<info>[^\n]*)\n(?P<code>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)


def blocks(page, kind):
    """(code, marked for execution, info, line) of each fenced block of that language."""
    text = page.read_text(encoding="utf-8") if page.is_file() else ""
    return [
        (m["code"], bool(m["mark"]), m["info"].strip(), text.count("\n", 0, m.start("code")))
        for m in FENCE.finditer(text)
        if m["kind"] == kind
    ]


def name_of(page):
    return page.relative_to(ROOT).as_posix()


def with_blocks(kind):
    return [page for page in PAGES if blocks(page, kind)]


@pytest.fixture
def workplace(tmp_path, monkeypatch):
    """An empty current folder but for the example files."""
    for path in EXAMPLES:
        shutil.copy(path, tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("RLZOO_PLUGINS", raising=False)
    return tmp_path


# ---------------------------------------------------------------- generated parts


@pytest.mark.process
def test_generated_docs_are_up_to_date(zoo):
    stale = [path.relative_to(ROOT).as_posix() for path in script("generate").stale(zoo)]
    assert stale == [], "run `python docs/generate.py`"


def test_every_marked_block_is_filled_and_every_component_has_its_page(zoo):
    generate = script("generate")
    for name, parts in generate.BLOCKS.items():
        text = (ROOT / name).read_text(encoding="utf-8")
        for marker in parts:
            inside = text.partition(f"<!-- {marker} -->")[2].partition(f"<!-- /{marker} -->")[0]
            assert inside.count("\n|") + inside.count("\n### ") >= 2, (name, marker)
    for component in generate.shipped(zoo):
        page = DOCS / "components" / component.kind / f"{component.name}.md"
        text = page.read_text(encoding="utf-8")
        assert all(f"`{option}`" in text for option in component.options), component.name


def test_the_doctor_asks_for_metrics_of_the_table():
    from rlzoo_lab.data.metrics import metrics
    from rlzoo_lab.doctor.agents import OF_IMPORTS
    from rlzoo_lab.doctor.rules import RULES

    names = {m.name for m in metrics()}
    asked = {metric for rule in RULES for metric in rule.metrics} - OF_IMPORTS
    assert {m for m in asked if not {m, m.rpartition("/")[0] + "/*"} & names} == set()


def test_a_loss_may_not_report_a_metric_of_the_table():
    from rlzoo.runs.metrics import OURS
    from rlzoo_lab.data.metrics import metrics

    names = {m.name for m in metrics()}
    below = {n for n in names if n.startswith(("actor/", "critic/"))}
    assert {f"{network}/{name}" for network, ours in OURS.items() for name in ours} == below


def test_a_docstring_is_cut_where_it_should_be(zoo):
    generate = script("generate")
    formula, rest = generate.parts_of(zoo.estimators["gae"])
    assert formula.startswith("A_t = sum_k")
    assert "Source" not in rest
    assert "It fails" in rest
    split = generate.sentences("One. It fails if a < b, e.g. at 0.5 or 1. Two `x`. `y` ends.")
    assert split == ["One.", "It fails if a < b, e.g. at 0.5 or 1.", "Two `x`.", "`y` ends."]
    assert generate.value_text("{question}\nAnswer:") == "`{question}\\nAnswer:`"
    assert generate.prose("k<n, `a<b`") == "k\\<n, `a<b`"


# ---------------------------------------------------------------- code


@pytest.mark.process
@pytest.mark.parametrize("page", with_blocks("python"), ids=name_of)
def test_python_blocks_run(page, workplace):
    """In order, in one namespace for each page."""
    space = {"__name__": "docs"}
    for code, _, info, line in blocks(page, "python"):
        if not info.startswith("file="):
            # The blank lines make a traceback name the page's own line.
            exec(compile("\n" * line + code, str(page), "exec"), space)


@pytest.mark.parametrize("page", with_blocks("python"), ids=name_of)
def test_files_that_are_shown_are_the_files(page):
    for code, _, info, _ in blocks(page, "python"):
        if info.startswith("file="):
            assert (page.parent / info.removeprefix("file=")).read_text(encoding="utf-8") == code


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: p.stem)
def test_the_examples_pass_the_kit(path):
    zoo = rlzoo.load_zoo([path])
    mine = [c for c in zoo if c.origin == str(path)]
    assert mine
    for component in mine:
        assert [r for r in checks.run_checks(component, zoo) if r.passed is False] == []


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: p.stem)
def test_the_examples_train_by_name(path, words, tmp_path):
    zoo = rlzoo.load_zoo([path])
    shelves = {"estimator": zoo.estimators, "task": zoo.tasks}
    ((key, name),) = [
        (k, c.name) for k, shelf in shelves.items() for c in shelf.values() if c.origin == str(path)
    ]
    mine = [*words, "train.steps=2", f"{key}={name}", f"run.dir={tmp_path}/run"]
    run = rlzoo.run("grpo", mine, zoo=zoo)
    assert run.summary[key] == name
    assert run.summary["steps"] == 2


# ---------------------------------------------------------------- commands


def commands(code):
    """(environment, words) of each `rlzoo ...` in a bash block; what is piped on is left out."""
    exported = {}
    for line in code.replace("\\\n", " ").splitlines():
        for part in re.split(r"\s(?:\||>|&&|;)\s", line):
            words = shlex.split(part, comments=True)
            given = dict(exported)
            if words[:1] == ["export"]:
                exported |= dict(w.split("=", 1) for w in words[1:])
            while words and re.fullmatch(r"[A-Z_]+=.*", words[0]):
                key, _, value = words.pop(0).partition("=")
                given[key] = value
            if words and Path(words[0]).name == "rlzoo":
                yield given, words[1:]


def test_commands_are_found():
    code = "export A=1\nB=x .venv/bin/rlzoo run a=b | tail\npip install x && rlzoo new a b\n"
    assert list(commands(code)) == [
        ({"A": "1", "B": "x"}, ["run", "a=b"]),
        ({"A": "1"}, ["new", "a", "b"]),
    ]


EXECUTED = [
    pytest.param(page, marks=pytest.mark.landing)
    if page.stem in ("own-task", "one-prompt", "README")
    else page
    for page in PAGES
    if any(marked for _, marked, *_ in blocks(page, "bash"))
]  # the longest before a landing only


@pytest.mark.process
@pytest.mark.parametrize("page", EXECUTED, ids=name_of)
def test_commands_that_are_marked_run(page, workplace, monkeypatch):
    """In order, each as the command line that it is; what the page exports before holds."""
    for code, executed, _, _ in blocks(page, "bash"):
        for environment, words in commands(code):
            for key, value in environment.items():
                monkeypatch.setenv(key, value)
            assert not executed or main(words) == 0, f"rlzoo {shlex.join(words)}"


@pytest.mark.parametrize("page", with_blocks("bash"), ids=name_of)
def test_commands_that_are_shown_exist(page, workplace, zoo, monkeypatch, capsys):
    # The folders that they write to are not there.
    monkeypatch.setattr("rlzoo_lab.view.written.refuse_unwritable", lambda *place, **kind: None)
    for code, executed, _, _ in blocks(page, "bash"):
        for environment, words in commands(code):
            for key, value in environment.items():
                monkeypatch.setenv(key, value)
            if not [w for w in words if w.startswith("-")]:
                assert words[0] in every_verb(), f"rlzoo {shlex.join(words)}"
            try:
                arguments = parse(words)
            except SystemExit as done:
                if done.code == 0:  # --help and --version end so
                    continue
                pytest.fail(f"rlzoo {shlex.join(words)}: {capsys.readouterr().err}")
            if not executed and arguments.command in ("run", "show") and arguments.words:
                mine = rlzoo.load_zoo() if "RLZOO_PLUGINS" in os.environ else zoo
                plan_without_data(compose(arguments.words, mine), mine)


def test_commands_in_running_text_exist():
    for page in PAGES:
        if page.is_file():
            text = page.read_text(encoding="utf-8")
            shown = re.findall(r"`rlzoo ([a-z]+)\b[^`]*`", text)
            unknown = [word for word in shown if word not in {*every_verb(), "help"}]
            assert unknown == [], name_of(page)


def test_every_command_is_in_the_docs():
    text = "".join(page.read_text(encoding="utf-8") for page in PAGES if page.is_file())
    assert [name for name in every_verb() if f"rlzoo {name}" not in text] == []


# ---------------------------------------------------------------- what is listed


def test_every_kind_is_documented():
    text = (DOCS / "write-an-estimator.md").read_text(encoding="utf-8")
    for kind in KINDS.values():
        assert f"|`{kind.singular}`|" in text, kind.singular


def listed(heading):
    """The keys in the first column of the table under a heading of columns.md."""
    text = (DOCS / "columns.md").read_text(encoding="utf-8")
    part = text.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    assert part, heading
    return re.findall(r"`([^`]+)`", " ".join(re.findall(r"^\| ?(.*?) ?\|", part, re.MULTILINE)))


@pytest.fixture(scope="module")
def runs(model_dir, tmp_path_factory):
    """Two-step runs that between them write all there is: with a critic, with a KL loss and a
    teacher, in turns."""
    place = tmp_path_factory.mktemp("metrics")
    small = [
        *(f"model.path={model_dir}", "rollout.prompts=4", "rollout.samples=4", "device=cpu"),
        *("rollout.max_new_tokens=5", "train.steps=2", "train.minibatches=2", "eval.samples=8"),
    ]
    two = ["rewards=[verifier,overlong]", "rewards.overlong.max_length=8", "estimator=mopd",
           "teacher.name=nano"]  # fmt: skip
    return [
        rlzoo.run("ppo_gae", ["model=nano", *small[1:], f"run.dir={place}/gae"]),
        rlzoo.run("grpo", [*small, *two, "rewards.overlong.buffer=4", "correction=tis",
                           f"run.dir={place}/grpo"]),
        rlzoo.run("grpo", [*small[1:4], *small[5:], "task=hi_lo", "model=turns",
                           f"run.dir={place}/turns"]),
    ]  # fmt: skip


@pytest.mark.process
def test_the_metrics_of_a_step_are_listed_and_no_others(runs):
    found = {k for run in runs for line in run.metrics if "reward/mean" in line for k in line}
    of_losses = set(listed("Metrics of losses"))
    want = set(listed("A step's line"))
    kinds = ("score", "group/no_signal")
    rewards = {f"{kind}/{name}" for kind in kinds for name in ("verifier", "overlong")}
    assert rewards <= found
    assert found - of_losses - rewards == want - {f"{kind}/NAME" for kind in kinds}


@pytest.mark.process
def test_the_metrics_of_an_evaluation_are_listed_and_no_others(runs):
    lines = [line for run in runs for line in run.metrics if "eval/score" in line]
    found = {key for line in lines for key in line}
    rewards = {"eval/reward/verifier", "eval/reward/overlong"}
    assert rewards <= found
    assert found - rewards == set(listed("An evaluation's line")) - {"eval/reward/NAME"}


@pytest.mark.process
def test_the_other_files_of_a_run_are_listed(runs):
    assert set(runs[0].summary) - {"accuracy", "score"} == {
        key for key in listed("summary.json") if key in runs[0].summary
    }
    sample = json.loads((runs[0].path / "samples.jsonl").read_text().splitlines()[0])
    assert set(sample) == set(listed("samples.jsonl"))
    tutorial = (DOCS / "tutorial.md").read_text(encoding="utf-8")
    for path in runs[0].path.iterdir():
        assert f"  {path.name}" in tutorial, path.name


def test_the_metrics_of_the_shipped_losses_are_listed(zoo):
    columns = made_up(zoo, dtype=torch.float32)
    found = set()
    for prefix, shelf in (("actor", zoo.policy_losses), ("critic", zoo.value_losses)):
        for loss in shelf.values():
            _, metrics = loss(columns)
            found |= {f"{prefix}/{name}" for name in metrics}
    assert found == set(listed("Metrics of losses"))


# ---------------------------------------------------------------- links


def anchors(page):
    heads = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).strip().replace(" ", "-") for head in heads}


def test_links_between_pages_resolve():
    lost = []
    for page in ALL_PAGES:
        if not page.is_file():
            continue
        text = FENCE.sub("", page.read_text(encoding="utf-8"))
        text = re.sub(r"`[^`\n]*`", "", text)
        for target in re.findall(r"\]\(([^)\s]+)\)", text):
            if re.match(r"[a-z]+:", target):
                continue
            file, _, anchor = target.partition("#")
            path = (page.parent / file).resolve() if file else page
            known = path.suffix == ".html" or not anchor  # there it is a state, not a heading
            if not path.exists() or not (known or anchor in anchors(path)):
                lost.append(f"{name_of(page)}: {target}")
    assert lost == []


def test_every_page_is_in_the_index():
    index = (DOCS / "README.md").read_text(encoding="utf-8")
    pages = [page.name for page in DOCS.glob("*.md") if page.name != "README.md"]
    assert [name for name in pages if f"({name})" not in index] == []
