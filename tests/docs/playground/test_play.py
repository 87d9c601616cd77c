"""`rlzoo play`: the page as a file."""

import json
import re

import pytest

import rlzoo
from helpers.javascript import ENGINE, run_javascript
from helpers.play import HOME, source_of
from playground import KINDS, SCRIPTS, declared, page
from rlzoo.cli import main


def test_the_verb_writes_one_small_page(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["play"]) == 0
    assert "play.html" in capsys.readouterr().out
    text = (tmp_path / "play.html").read_text(encoding="utf-8")
    assert len(text.encode()) < 300_000
    assert "README.md" not in text
    assert '<a href="README.md">' in page(rlzoo.load_zoo())
    assert "default-src 'none'" in text
    assert not re.search(r"""(src|href)=["'](https?:)?//|@import|fetch\(|XMLHttp""", text)
    assert main(["play", "--out", "other.html", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"play": "other.html", "opened": False}
    assert (tmp_path / "other.html").read_text(encoding="utf-8") == text


def test_a_place_that_cannot_be_written_is_one_line(tmp_path, capsys):
    assert main(["play", "--out", str(tmp_path / "none" / "play.html")]) != 0
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_it_opens_a_browser_where_one_is_wanted(tmp_path, monkeypatch, capsys):
    opened = []
    monkeypatch.setattr("webbrowser.open", lambda address: opened.append(address) or True)
    assert main(["play", "--open", "--out", str(tmp_path / "play.html")]) == 0
    assert opened == [(tmp_path / "play.html").as_uri()]
    capsys.readouterr()


def test_no_two_scripts_of_the_page_declare_the_same_name(zoo):
    script = page(zoo).rpartition("<script>")[2].partition("</script>")[0]
    declared = r"^(?:const|let|var|function|class) (\w+)|^  ([A-Z]+) = .*[,;]$"
    names = [a or b for a, b in re.findall(declared, script, re.M)]
    assert len(names) > 100
    assert sorted(names) == sorted(set(names))


def test_the_page_has_every_script_and_only_the_zoos_components(zoo):
    assert sorted(SCRIPTS) == sorted(path.stem for path in HOME.glob("*.js"))
    text, found = page(zoo), declared(zoo)
    assert all(source_of(name).strip() in text for name in SCRIPTS)
    assert list(found) == list(KINDS)
    assert found["estimators"]["gae"]["options"]["lam"] == {
        "default": 0.95, "low": 0, "high": 1, "whole": False,
    }  # fmt: skip
    assert found["estimators"]["n_step"]["options"]["n"]["whole"] is True


@pytest.mark.skipif(ENGINE is None, reason="neither node nor chromium is installed")
def test_only_components_with_a_twin_are_offered(zoo):
    scripts = source_of("advantage", "world", "state")
    source = f"{scripts}\nconst data = {json.dumps(declared(zoo))};"
    offered = run_javascript(source, "[WORDS.estimator, WORDS.loss, WORDS.kl]")
    twins = run_javascript(
        source_of("advantage"), "[ESTIMATORS, LOSSES, KL_PENALTIES].map(Object.keys)"
    )
    assert offered == twins
    for kind, names in zip(KINDS, offered, strict=True):
        assert set(names) <= set(declared(zoo)[kind])
