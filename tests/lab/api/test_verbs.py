"""The functions of Python are the verbs of the command line: same words, same answers."""

import copy
import inspect
import json
import pickle
import subprocess
import sys

import pytest

import rlzoo
from helpers.made_up_runs import made_up_run
from rlzoo.cli import main, parser_of
from rlzoo.errors import RlzooError, UsageError
from rlzoo_lab.api import verbs
from rlzoo_lab.view.declared import declared

# function -> its verb, and parameters that are words of the command line, not options
FUNCTIONS = {
    "sweep": ("sweep", {"recipe", "overrides", "keys", "display"}),
    "compare": ("compare", {"runs"}),
    "diagnose": ("diagnose", {"what", "overrides"}),
    "trace": ("trace", {"what", "overrides", "options"}),
    "evaluate": ("eval", {"what", "overrides"}),
    "doctor": ("doctor", {"run", "display"}),
    "report": ("report", {"run"}),
    "check": ("check", {"name", "overrides"}),
    "export": ("model export", {"run", "directory"}),
}
OF_THE_TERMINAL = {"csv", "latex", "help", "json", "allow_env", "markdown", "quiet", "open"}


def own_functions():
    found = {n: f for n, f in vars(verbs).items() if inspect.isfunction(f) and n[0] != "_"}
    return {n: f for n, f in found.items() if f.__module__ == verbs.__name__}


def test_every_function_is_listed_here_and_public():
    assert set(own_functions()) == {*FUNCTIONS, "verb"}
    assert set(FUNCTIONS) < set(rlzoo.__all__)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_has_the_options_of_its_verb_and_no_others(name):
    verb, words = FUNCTIONS[name]
    parser = parser_of(verb)
    options = {a.dest for a in parser._actions if a.option_strings} - OF_THE_TERMINAL
    asked = set(inspect.signature(getattr(rlzoo, name)).parameters) - words
    assert asked == options, f"rlzoo.{name} in plugins/rlzoo_lab/api/verbs.py, and `rlzoo {verb}`"
    assert f"`rlzoo {verb}`" in inspect.getdoc(getattr(rlzoo, name))
    assert {o.name for o in declared(getattr(rlzoo, name))} == asked, "says what each is"


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    place = tmp_path_factory.mktemp("runs")
    return [made_up_run(place / f"a=1,[{i}]", seed=i, after=0.5 + i / 10) for i in range(2)]


def test_a_document_is_what_json_prints(two, capsys):
    found = rlzoo.compare(*two)
    assert main(["compare", "--json", *map(str, two)]) == 0
    assert json.loads(json.dumps(found)) == json.loads(capsys.readouterr().out)
    assert main(["compare", *map(str, two)]) == 0
    verdict = " ".join(found["verdict"])
    assert verdict in " ".join(capsys.readouterr().out.split())
    assert verdict in " ".join(repr(found).split())
    frame = found.frame()
    assert frame["mean"].tolist() == [row["mean"] for row in found["rows"]]
    assert r"\begin{tabular}" in found.latex()
    assert found.plot("finals").axes[0].get_xlabel().startswith("final ")
    assert "<table" in found._repr_html_()
    with pytest.raises(UsageError, match="did you mean 'finals'"):
        found.plot("final")


def test_a_document_shows_itself_and_copies_as_a_dict(two):
    found = rlzoo.compare(*two)
    assert found._repr_html_().startswith("<div")
    assert found._repr_html_() == found._repr_html_(), "a view may be looked at twice"
    assert found.status == 0
    again = pickle.loads(pickle.dumps(found))
    assert type(again) is dict
    assert again == copy.deepcopy(found) == found


def test_options_are_written_as_on_the_command_line(tmp_path):
    typed = rlzoo.trace(rewards=[0, 0, 1], values=[0.3, 0.4, 0.6], estimator="gae", lam=[0, 0.95])
    raw = [[round(x, 3) for x in c["columns"]["raw_advantages"]] for c in typed["credits"]]
    assert raw == [[0.1, 0.2, 0.4], [0.651, 0.58, 0.4]]
    group = rlzoo.trace(rewards=[[0, 0, 1], [-0.5, 0]], estimator="rloo", html=tmp_path / "t.html")
    assert group["rows"] == 2
    assert "rloo(): not whitened" in (tmp_path / "t.html").read_text()


@pytest.mark.parametrize(
    ("kernel", "display", "said"),
    [(False, None, 0), (False, True, 1), (True, None, 1), (True, False, 0)],
)
def test_a_sweep_tells_lines_where_it_is_asked_to(
    kernel, display, said, monkeypatch, capsys, tmp_path
):
    """A kernel calls itself a terminal (FORCE_COLOR), and cannot redraw a table."""
    from rlzoo_zoo.executors.local import Local

    def one_is_done(self, jobs, work, board, folder, at_a_time):
        board.begin(jobs[0])
        board.done(
            jobs[0], {"eval_before": 0.1, "eval_after": 0.2, "eval_metric": "x", "seconds": 1}
        )
        raise KeyboardInterrupt

    monkeypatch.setenv("FORCE_COLOR", "1" if kernel else "")
    monkeypatch.setattr(verbs, "in_notebook", lambda: kernel)
    monkeypatch.setattr(Local, "run", one_is_done)
    words = ["train.steps=2", "seed=0,1", "device=cpu"]
    with pytest.raises(RlzooError, match="interrupted; run the same command again"):
        rlzoo.sweep("grpo", words, jobs=1, dir=tmp_path / "sweep", display=display)
    out = capsys.readouterr().out
    assert out.count("x 0.100 -> 0.200") == said
    assert "\x1b" not in out


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda a: rlzoo.compare(a, "nix"), "nix is not a run folder"),
        (lambda a: rlzoo.compare(a, threshold="x"), "threshold: invalid float value: 'x'"),
        (lambda a: rlzoo.diagnose("ppo_gea"), "did you mean 'ppo_gae'"),
        (lambda a: rlzoo.diagnose("runs/nope"), "runs/nope is not a run folder"),
        (lambda a: rlzoo.doctor("nix"), "nix is not a run folder"),
        (lambda a: rlzoo.trace(rewards=[1], lamm=0.9), "did you mean 'lam'"),
        (lambda a: rlzoo.evaluate(a, k="2.5"), "--k"),
        (lambda a: rlzoo.check(), "--all"),
        (lambda a: rlzoo.sweep("ppo_gae", ["seed=0"], jobs=0), "jobs"),
        (lambda a: rlzoo.export(a, a), ""),
    ],
)
def test_what_is_wrong_is_one_line(call, said, two, capfd):
    with pytest.raises(RlzooError) as caught:
        call(two[0])
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)
    assert caught.value._render_traceback_() == [f"{type(caught.value).__name__}: {caught.value}"]
    assert "usage:" not in capfd.readouterr().err


def test_a_cause_keeps_its_traceback_in_a_notebook():
    try:
        try:
            int("x")
        except ValueError as error:
            raise UsageError("it is none") from error
    except UsageError as caught:
        lines = caught._render_traceback_()
    assert "ValueError" in "".join(lines[:-1])
    assert lines[-1] == "UsageError: it is none"


def test_any_verb_can_be_called_by_its_name():
    found = rlzoo.verb("recipes", "grpo")
    assert "grpo" in json.dumps(found)
    assert "grpo" in repr(found)
    with pytest.raises(UsageError, match="did you mean 'recipes'"):
        rlzoo.verb("recipe")
    with pytest.raises(UsageError, match="unrecognized arguments: --wrod"):
        rlzoo.verb("recipes", wrod=1)


def test_a_folder_may_begin_with_a_dash(two, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    made_up_run(tmp_path / "-x", seed=0, after=0.6)
    from pathlib import Path

    assert rlzoo.compare(Path("-x"), two[1])["rows"]


@pytest.mark.process
def test_reading_a_run_loads_no_torch(two):
    code = (
        "import sys, rlzoo\n"
        "run = rlzoo.load_run(sys.argv[1]); repr(run); run._repr_html_()\n"
        "rlzoo.compare(run, sys.argv[2])._repr_html_(); rlzoo.doctor(run)\n"
        "[getattr(rlzoo, n) for n in ('run', 'sweep', 'trace', 'diagnose', 'check', 'export')]\n"
        "assert 'torch' not in sys.modules and 'matplotlib' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code, *map(str, two)], capture_output=True)
    assert done.returncode == 0, done.stderr.decode()


def test_a_list_of_runs_and_of_values_is_taken_as_it_is_meant(tmp_path):
    runs = [made_up_run(tmp_path / name, after=0.5, seed=i) for i, name in enumerate("ab")]
    assert rlzoo.compare(runs)["rows"] == rlzoo.compare(*runs)["rows"]
    small = {"horizon": 2, "vocabulary": 3, "batches": [4]}
    found = rlzoo.diagnose("ppo_gae", {"estimator": ["gae", "mc"]}, **small)
    assert {row["estimator"] for row in found["estimators"]} == {"gae", "mc"}


def test_a_warning_names_the_line_of_the_caller():
    with pytest.warns(UserWarning, match="off-policy") as seen:
        rlzoo.verb("show", "grpo", "rollout.staleness=1")
    assert [warning.filename for warning in seen] == [__file__]
