"""`rlzoo report`: the page parsed, of a small run, a long one, a hostile one, of broken ones."""

import base64
import hashlib
import json
import re
import threading
import time
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import rlzoo
from helpers.made_up_reports import HOSTILE, made_up_report_run, page_of
from rlzoo.cli import main
from rlzoo.errors import RlzooError, RunError
from rlzoo.runs.folder import RunFolder
from rlzoo.runs.lock import is_locked, locked
from rlzoo_lab.data.record import read_record
from rlzoo_lab.doctor.report import command
from rlzoo_lab.doctor.report.batches import read_samples
from rlzoo_lab.doctor.report.html import read_report
from rlzoo_lab.doctor.report.trend import Trend

VOID = {"meta", "br", "img", "input", "link"}


def test_a_step_with_many_samples_costs_no_more(tmp_path):
    lines = ({"step": n // 500, "response": "x" * 20, "score": 0.5} for n in range(5000))
    (tmp_path / "samples.jsonl").write_text("".join(json.dumps(x) + "\n" for x in lines))
    kept = read_samples(RunFolder(tmp_path))
    assert len(kept) == 10
    assert max(map(len, kept.values())) < 10


class Page(HTMLParser):
    """A page's elements, its texts, its scripts; a tag that does not close is a fault."""

    def __init__(self, text):
        super().__init__()
        self.elements, self.texts, self.scripts, self.open = [], [], {}, []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] == "script":
            self.scripts[self.elements[-1][1].get("type", "")] = data
        elif self.open and self.open[-1] != "style":
            self.texts.append(data)

    def all(self, tag, **wanted):
        return [a for t, a in self.elements if t == tag and wanted.items() <= a.items()]

    @property
    def data(self):
        return json.loads(self.scripts["application/json"])

    @property
    def text(self):
        return " ".join(self.texts)


def read(path):
    return Page(path.read_text(encoding="utf-8"))


def assert_sound(page):
    """It fetches nothing, runs its own script alone, and every link within it leads somewhere."""
    (policy,) = (a["content"] for a in page.all("meta") if "Policy" in a.get("http-equiv", ""))
    digest = base64.b64encode(hashlib.sha256(page.scripts[""].encode()).digest()).decode()
    assert policy == f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
    assert len(page.all("script")) == len(page.scripts) == 2
    assert not page.all("img") + page.all("link") + page.all("iframe")
    ids = [a["id"] for _, a in page.elements if "id" in a]
    assert len(ids) == len(set(ids))
    for _, attributes in page.elements:
        assert not [name for name in attributes if name.startswith("on") or name == "src"]
        if "href" in attributes:
            assert attributes["href"].removeprefix("#") in ids
    asked = set(re.findall(r'by\("([\w-]+)"\)', page.scripts[""]))
    if page.data["tokens"]:
        assert asked - {"at", "row-of"} <= set(ids)


def test_a_page_has_three_tabs_and_every_number(tmp_path):
    run = made_up_report_run(tmp_path / "run")
    place = page_of(run)
    assert place == run / "report.html"
    page = read(place)
    assert_sound(page)
    tabs = page.all("a", role="tab")
    assert [t["aria-controls"] for t in tabs] == ["trend", "step", "token"]
    for tab in tabs:
        (panel,) = page.all("section", id=tab["aria-controls"])
        assert (panel["role"], panel["aria-labelledby"]) == ("tabpanel", tab["id"])
    assert not [m for m in page.all("meta") if m.get("http-equiv") == "refresh"]
    # trend: each curve as it was recorded
    record = read_record(run)
    charts = page.data["charts"].values()
    assert [v for c in charts for v in c["y"].get("accuracy", [])] == record.evaluations.column(
        "eval/accuracy"
    )[1].tolist()
    rewards = next(c["y"][""] for c in charts if c["span"][0] == 1)
    assert rewards == pytest.approx(record.series("reward/mean"), rel=1e-4)
    # step: all groups, the flat ones marked, each response with a way to its tokens
    assert len(page.all("section", **{"class": "step"})) == 2
    groups = [a for a in page.all("details") if a.get("class", "").startswith("group")]
    assert len(groups) == 2 * 3
    assert 2 <= sum(a["class"] == "group flat" for a in groups) < 6
    assert len([a for a in page.all("a") if "data-row" in a]) == 2 * 12
    # token: the numbers that were saved
    newest = page.data["tokens"]["batches"][0]
    assert newest["step"] == 20
    saved = load_file(run / "batches" / "step-00000020.safetensors")
    for row in newest["rows"]:
        n, r = row["length"], row["row"]
        assert row["ids"] == saved["response_ids"][r, :n].tolist()
        ratio = saved["log_probs"][r, :n] - saved["old_log_probs"][r, :n]
        for name, column in {"advantages": saved["advantages"][r, :n], "log_ratio": ratio}.items():
            assert row["numbers"][name] == pytest.approx(column.tolist(), rel=1e-2, abs=1e-9)
        assert row["numbers"]["mismatch"] == 0  # alike everywhere: one number for all
    shades = page.data["tokens"]["shades"]
    assert {"values", "log_ratio", "log_gap", "entropy", "mismatch"} <= set(shades)


def test_hostile_texts_are_text(tmp_path):
    run = made_up_report_run(
        tmp_path / "run", texts=HOSTILE, extra=HOSTILE[:8], groups=9, tokens=60
    )
    text = page_of(run).read_text(encoding="utf-8")
    page = Page(text)
    assert_sound(page)
    assert text.replace("\n", "").isprintable()
    for shown in ("<script>document.title='owned'</script>", r"a\x00b\x1b[31mred\x07\x7f\x85",
                  r"\u202etxet desrever\u202c", r"lone \ud800 surrogate"):  # fmt: skip
        assert shown in page.text
        assert any(shown in t for t in page.data["tokens"]["batches"][0]["tokens"].values())


def test_a_long_run_is_drawn_in_few_points_and_keeps_its_extremes(tmp_path):
    run = made_up_report_run(tmp_path / "run", steps=1000, tokens=3000, extra=("spike",))
    lines = (run / "metrics.jsonl").read_text().splitlines()
    odd = json.loads(lines[501]) | {"actor/spike": 77.0}
    (run / "metrics.jsonl").write_text("\n".join([*lines[:501], json.dumps(odd), *lines[502:]]))
    place = page_of(run)
    page = read(place)
    assert_sound(page)
    assert place.stat().st_size < 5e6
    assert max(len(c["x"]) for c in page.data["charts"].values()) == 240
    card = next(i for i, t in enumerate(page.texts) if t == "actor/spike")
    assert "75" in page.texts[card : card + 12]  # its axis reaches the one step's spike
    assert "tokens" in page.text
    told = re.search(r"(\d+) responses are not shown, because a page shows at most 32,000 tokens; "
                     r"(\d+) responses are shown only up to 2,000", page.text)  # fmt: skip
    shown = [row for b in page.data["tokens"]["batches"] for row in b["rows"]]
    assert int(told[1]) == 2 * 12 - len(shown)
    assert sum(len(row["ids"]) for row in shown) <= 32_000
    assert max(len(row["ids"]) for row in shown) == 2000
    # the room goes to groups with signal
    left = {0} - {row["group"] for row in shown}
    assert left == {0}


def test_the_first_chart_is_the_metric_of_the_headline(tmp_path):
    """With scores and greedy decoding, and no accuracy: what the tile says is the first curve."""
    run = made_up_report_run(tmp_path / "run", steps=40)
    file = run / "metrics.jsonl"
    text = file.read_text()
    for end in ("", "_low", "_high"):
        text = text.replace(f'"eval/accuracy{end}"', f'"eval/score{end}"')
    file.write_text(text.replace('"eval/score":', '"eval/greedy": 0.95, "eval/score":'))
    record = read_record(run)
    page = read(page_of(run))
    first, *_ = page.data["charts"].values()
    assert first["y"]["score"] == pytest.approx(record.evaluations.column("eval/score")[1].tolist())
    assert list(first["y"]) == ["score", "greedy"]
    assert page.text.index("held-out score") < page.text.index("before training")


def test_notes_wait_until_the_first_charts_are_seen(tmp_path):
    """What must be mended comes first; what is merely good to know does not."""
    report = read_report(RunFolder(made_up_report_run(tmp_path / "run", steps=40)))
    first = report.findings[0]

    def places(*severities):
        found = [replace(first, severity=s) for s in severities]
        html = Trend(report.record, found, 40).html
        return html.index('class="remarks"') < html.index('class="charts"')

    assert places("note", "warning")
    assert not places("note", "note")


def test_a_legend_explains_its_names(tmp_path):
    run = made_up_report_run(tmp_path / "run")
    file = run / "metrics.jsonl"
    told = file.read_text()
    file.write_text(told.replace('"eval/accuracy":', '"eval/answer_prob": 0.5, "eval/accuracy":'))
    page = read(page_of(run))
    (shown,) = [a for a in page.all("span") if "P(the answer, then EOS)" in a.get("title", "")]
    assert shown["class"].startswith("key")
    assert "answer_prob" not in page.text.partition("Settings")[0]


@pytest.mark.landing
def test_a_page_is_loaded_anew_only_while_its_run_goes_on(tmp_path, capsys):
    run = made_up_report_run(tmp_path / "run", finished=False)

    def refreshes():
        found = [m["content"] for m in read(run / "report.html").all("meta")
                 if m.get("http-equiv") == "refresh"]  # fmt: skip
        return found

    assert main(["report", str(run), "--watch", "1"]) == 0  # nobody is at work: it ends at once
    assert refreshes() == []
    assert "stopped" in capsys.readouterr().out
    with locked(run):
        assert is_locked(run)
        assert main(["report", str(run)]) == 0
        assert refreshes() == []  # nobody would write it anew
        assert "running" in capsys.readouterr().out
        watching = threading.Thread(target=main, args=(["report", str(run), "--watch", "1"],))
        watching.start()
        end = time.monotonic() + 30
        while time.monotonic() < end and refreshes() != ["1"]:
            time.sleep(0.05)
        assert refreshes() == ["1"]
    watching.join(30)
    assert not watching.is_alive()
    assert refreshes() == []
    assert not is_locked(run)
    (run / ".lock").touch()  # what a killed process leaves
    assert not is_locked(run)


def test_without_batches_it_says_how_to_get_them(tmp_path):
    run = made_up_report_run(tmp_path / "run", batches=0)
    page = read(page_of(run, tmp_path / "page.html"))
    assert_sound(page)
    assert page.text.count("With run.save_batches=1, rlzoo saves") == 2
    assert "Samples during the run" in page.text
    assert page.data["tokens"] == {}


def test_what_is_broken_is_named_and_left_out(tmp_path, capsys):
    run = made_up_report_run(tmp_path / "run", batches=4)
    place = run / "batches"
    (place / "step-00000020.safetensors").write_bytes(b"no tensors")
    (place / "step-00000019.json").write_text("{")
    (place / "step-00000018.json").unlink()
    alone = load_file(place / "step-00000017.safetensors")
    alone["group_ids"] = np.arange(12)  # groups of one: nothing to compare, so none is flat
    save_file(alone, place / "step-00000017.safetensors")
    with open(run / "metrics.jsonl", "a") as file:
        file.write('{"step": 21, "reward/me')
    page = read(page_of(run))
    assert_sound(page)
    for name in ("step-00000020", "step-00000019", "step-00000018"):
        assert f"batches/{name}.safetensors cannot be read" in page.text
    assert "metrics.jsonl: line 27 cannot be read; ignoring 1 of 27 lines" in page.text
    assert [b["step"] for b in page.data["tokens"]["batches"]] == [17]
    assert "12 groups; no group is flat" in page.text
    alone["advantages"][0, 0] = np.nan
    save_file(alone, place / "step-00000017.safetensors")
    page = read(page_of(run))
    assert "cannot be read: advantages is not finite" in page.text
    assert page.data["tokens"] == {}
    bare = made_up_report_run(tmp_path / "bare", steps=0, batches=0, finished=False)
    assert "No step has finished yet." in read(page_of(bare)).text
    (bare / "metrics.jsonl").write_text("")
    assert_sound(read(page_of(bare)))
    with pytest.raises(RunError, match="is not a run folder"):
        page_of(tmp_path / "nowhere")
    (tmp_path / "file").touch()
    with pytest.raises(RlzooError, match="--out: there is no folder"):
        page_of(run, tmp_path / "file" / "page.html")
    assert main(["report", str(run), "--watch", "0"]) == 2
    assert "--watch: must be at least 1 second" in capsys.readouterr().err


def test_the_command_tells_what_it_wrote(tmp_path, capsys, monkeypatch):
    run = made_up_report_run(tmp_path / "run", batches=0)
    assert main(["report", str(run)]) == 0
    out = capsys.readouterr().out
    assert "report.html (step 20, finished)" in out
    assert "run.save_batches=1" in out
    assert main(["report", str(run), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["state"] == "finished"
    assert {"rule": "updates_skipped", "severity": "warning"} in document["remarks"]
    assert command.NAME == "report.html"
    opened = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    assert main(["report", str(run), "--open"]) == 0
    assert opened == [(run / "report.html").resolve().as_uri()]


def test_a_real_run_keeps_what_its_page_shows(tmp_path, words, zoo):
    import torch
    from safetensors.torch import load_file as load_tensors

    from rlzoo.train.record import save_batch

    trainer = rlzoo.open_recipe("ppo_gae", words, zoo=zoo)
    batch, _ = trainer.step()
    save_batch(RunFolder(tmp_path), trainer.world, batch, 1, keep=1)
    saved = load_tensors(tmp_path / "batches" / "step-00000001.safetensors")
    with torch.no_grad():
        now = trainer.world.policy.log_prob_stats(batch, want=("entropy",))
    torch.testing.assert_close(saved["log_probs"], now["log_probs"])
    torch.testing.assert_close(saved["entropy"], now["entropy"])
    assert not torch.equal(saved["log_probs"], saved["old_log_probs"])  # the update moved it
    texts = json.loads((tmp_path / "batches" / "step-00000001.json").read_text())["token_texts"]
    assert set(map(int, texts)) == set(
        batch["response_ids"][batch["response_attention"].bool()].tolist()
    )
