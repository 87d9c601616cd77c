"""Comparisons of made-up run folders, whose differences are known."""

import csv
import io
import json
import re
import shutil
from statistics import fmean

import numpy as np
import pytest
import scipy.stats
from rich.console import Console

from helpers.made_up_runs import made_up_rows, made_up_run, made_up_sweep
from rlzoo.cli import parser_of
from rlzoo.cli.verb import perform
from rlzoo.errors import RlzooError, UsageError
from rlzoo.format.text import printable
from rlzoo_lab import stats
from rlzoo_lab.compare import command as verb
from rlzoo_lab.compare.command import document
from rlzoo_lab.compare.comparison import compare
from rlzoo_lab.compare.curves import curves
from rlzoo_lab.compare.factors import main_effects, two_way
from rlzoo_lab.compare.tables import blocks, page_blocks
from rlzoo_lab.compare.verdict import verdict
from rlzoo_lab.data.comparable import label, telling_keys
from rlzoo_lab.data.record import read_record
from rlzoo_lab.view import numbers
from rlzoo_lab.view.html import body
from rlzoo_lab.view.numbers import sparkline, thousands
from rlzoo_lab.view.terminal import rendered
from rlzoo_lab.view.texts import markdown


def command(*words):
    parser = parser_of("compare")
    return perform(verb, parser.parse_args([str(w) for w in words]))


def printed(c, width, tables=(), details=False):
    console = Console(width=width, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    for part in rendered(blocks(c, tables, details), console):
        console.print(part)
    return console.export_text()


LAMS = {
    f"lam{lam:g}": (mean, {"estimator__lam": lam})
    for lam, mean in ((0.0, 0.5), (0.5, 0.62), (0.95, 0.75), (1.0, 0.75))
}


@pytest.fixture(scope="module")
def eight(tmp_path_factory):
    """Four rows of eight paired seeds; the last two do not differ but by noise."""
    folder = tmp_path_factory.mktemp("eight")
    made_up_rows(folder, LAMS, 8)
    return folder


@pytest.fixture(scope="module")
def compared(eight):
    return compare([eight])


TWO = {f"lam={lam:g}": (mean, {"estimator.lam": lam}) for lam, mean in ((0.5, 0.6), (0.95, 0.7))}


# ---------------------------------------------------------------- rows


def test_a_long_reason_of_failure_leaves_the_tables_alone(tmp_path):
    folder = made_up_sweep(tmp_path / "s", TWO, 2, failed=["lam=0.95"])
    why = "estimator 'mine' (mine.py:3) raised ValueError: " + "a long reason " * 8
    for path in folder.glob("*/failed.json"):
        path.write_text(json.dumps({"reason": why}))
    console = Console(width=80, record=True, file=io.StringIO())
    for part in rendered(blocks(compare([folder])), console):
        console.print(part)
    text = console.export_text()
    assert " ".join(text.split()).count("raised ValueError") == 3  # the verdict, a note for each
    lines = text.splitlines()
    assert next(line.split() for line in lines if "lam=0.95" in line) == ["lam=0.95", "failed"]
    assert next(line.split() for line in lines if line.startswith(" row"))[:3] == [
        "row", "seeds", "final",
    ]  # fmt: skip


def test_a_sweep_labels_its_rows_once(tmp_path):
    """A row keeps its name, and can be the reference, though all runs of its rivals failed."""
    folder = made_up_sweep(tmp_path / "s", TWO, 2, failed=["lam=0.95"])
    c = compare([folder], reference="lam=0.5")
    assert [row.label for row in c.rows] == ["lam=0.5"]
    assert c.reference.label == "lam=0.5"
    assert set(c.gathered.failed) == {"lam=0.95"}
    # the reference itself failed: what is left is compared, and it is said
    c = compare([folder], reference="0.95")
    assert [row.label for row in c.rows] == ["lam=0.5"]
    assert "no run of the reference lam=0.95 is finished" in c.notes[0]
    with pytest.raises(UsageError, match="'0.7' does not identify one row"):
        compare([folder], reference="0.7")


def test_rows_are_labelled_anew_where_no_sweep_says_it(tmp_path):
    """Sweeps of before, two sweeps beside each other, and a sweep whose rows hold two recipes."""
    bare = made_up_sweep(tmp_path / "bare", TWO, 2, labelled=False)
    assert [row.label for row in compare([bare]).rows] == ["lam=0.5", "lam=0.95"]
    a = made_up_sweep(tmp_path / "a", {"gae": (0.5, {})}, 2)
    b = made_up_sweep(tmp_path / "b", {"gae": (0.6, {"estimator.lam": 0.5})}, 2)
    assert [row.label for row in compare([a, b]).rows] == ["lam=0.95", "lam=0.5"]
    made_up_run(a / "gae--seed2", seed=2, after=0.5, estimator__lam=0.5)
    index = json.loads((a / "sweep.json").read_text())
    index["rows"][0]["runs"].append("gae--seed2")
    (a / "sweep.json").write_text(json.dumps(index))
    assert [row.label for row in compare([a]).rows] == ["lam=0.95", "lam=0.5"]


def test_rows_are_what_differs_but_for_the_seed(compared):
    assert [row.label for row in compared.rows] == ["lam=0", "lam=0.5", "lam=0.95", "lam=1"]
    assert all(row.seeds == list(range(8)) for row in compared.rows)


def test_labels_take_the_fewest_keys_names_first():
    configs = [
        {"estimator.name": "gae", "estimator.lam": 0.0, "kl.name": "k1", "x.lam": 1},
        {"estimator.name": "gae", "estimator.lam": 1.0, "kl.name": "k1", "x.lam": 1},
        {"estimator.name": "mc", "kl.name": "k2", "x.lam": 1},
    ]
    keys = telling_keys(configs, [])
    assert keys == ["estimator.name", "estimator.lam"]
    labels = [label({k: c[k] for k in keys if k in c}) for c in configs]
    assert labels == ["gae lam=0", "gae lam=1", "mc"]
    assert telling_keys(configs, ["kl.name"]) == ["kl.name", "estimator.lam"]
    assert label({"a.lam": 0.5, "b.lam": None}) == "a.lam=0.5 b.lam=null"


def test_recipes_are_rows_by_their_name(tmp_path):
    for seed in (0, 1):
        made_up_run(tmp_path / f"a{seed}", seed=seed, after=0.5)
        made_up_run(tmp_path / f"b{seed}", seed=seed, after=0.6, recipe="grpo",
                    estimator={"name": "grpo"}, whiten="none")  # fmt: skip
    assert [row.label for row in compare([tmp_path]).rows] == ["ppo_gae", "grpo"]


def test_where_and_how_often_it_ran_makes_no_row(tmp_path):
    made_up_run(tmp_path / "a", seed=0, after=0.5)
    made_up_run(tmp_path / "b", seed=1, after=0.5, device="cuda", checkpoint={"every": 3},
                loggers={"csv": {}}, eval__every=3)  # fmt: skip
    assert len(compare([tmp_path]).rows) == 1


def test_of_two_runs_of_a_seed_the_newer_counts_and_is_named(tmp_path):
    import os

    made_up_run(tmp_path / "new", seed=0, after=0.9)
    old = made_up_run(tmp_path / "old", seed=0, after=0.5)
    os.utime(old / "summary.json", (1, 1))
    c = compare([tmp_path])
    assert c.rows[0].scores == [0.9]
    assert any("there are two runs; using the newer one, new," in note for note in c.notes)


# ---------------------------------------------------------------- numbers


def test_the_numbers_are_those_of_stats(compared):
    out = document(compared)
    rows = {row["row"]: row for row in out["rows"]}
    best, base = rows["lam=0.95"], rows["lam=0"]
    assert best["iqm"] == stats.iqm(best["scores"])
    assert best["interval"] == stats.iqm_interval(best["scores"])
    assert best["mean_interval"] == stats.t_interval(best["scores"])
    table = np.array([row["scores"] for row in out["rows"]]).T
    expected = -stats.block(table).contrasts[0, 2]
    found = best["against_reference"]
    assert (found["difference"], found["interval"], found["p"]) == (
        expected.mean, expected.interval, expected.p
    )  # fmt: skip
    signs = stats.paired(table[:, 2] - table[:, 0])
    assert (found["p_sign_flip"], found["widest"]) == (signs.p, signs.widest)
    assert found["detectable"] == stats.detectable(expected.sd, 8, 4)
    assert found["improvement"] == stats.improvement(best["scores"], base["scores"])
    assert base["against_reference"] is None
    ps = [pair["p_sign_flip"] for pair in out["pairs"]]
    assert len(ps) == 6
    assert [pair["p_holm"] for pair in out["pairs"]] == stats.holm(ps)
    # a line from .3 to the final score: its mean height is halfway
    assert best["area"] == pytest.approx(
        stats.iqm([(0.3 + score) / 2 for score in best["scores"]]), abs=1e-9
    )
    assert (best["kl"], best["length"], best["tokens"], best["seconds"]) == (0.5, 4.0, 6000, 10)


def test_censored_runs_stay_censored(eight):
    c = compare([eight], threshold=0.7)
    rows = {row["row"]: row["threshold"] for row in document(c)["rows"]}
    assert rows["lam=0"]["steps"] is None
    assert (rows["lam=0"]["reached"], rows["lam=0"]["of"]) == (0, 8)
    assert rows["lam=1"]["reached"] > 4
    assert rows["lam=1"]["steps"] == 6
    assert rows["lam=1"]["tokens"] == 6000
    text = printed(c, 140)
    assert ">6 (0/8 reached)" in text


def test_the_threshold_is_halfway_to_the_best(compared):
    best = max(stats.iqm(row.scores) for row in compared.rows)
    assert compared.threshold == pytest.approx((0.3 + best) / 2, abs=0.01)


def test_a_reference_named_before_is_the_only_one_tested(eight):
    for name in ("lam=0.5", "0.5", "estimator.lam=0.5"):
        c = compare([eight], reference=name)
        assert c.reference.label == "lam=0.5"
        assert len(c.pairs) == 3
    with pytest.raises(UsageError, match=r"did you mean 'lam=0.5'.*available: lam=0, "):
        compare([eight], reference="lam=0.6")
    with pytest.raises(UsageError, match="does not identify one row"):
        compare([eight], reference="lam")


# ---------------------------------------------------------------- words


def test_verdict_says_what_is_shown_and_what_could_not_be(compared):
    said = " ".join(verdict(compared))
    assert re.search(
        r"lam=(0.95|1) beats lam=0: \+0.\d{3} \[.\d{3}, .\d{3}\], P\(better\) = ", said
    )
    assert re.search(r"lam=(0.95|1) is indistinguishable from lam=(1|0.95): .* at 8 seeds, which "
                     r"could have detected 0.0\d\d to 0.0\d\d", said)  # fmt: skip
    # a line for each other row, and one for the reference; no results by prompt
    assert len(verdict(compared)) == 4
    assert "lam=0 beats" not in said


def test_few_seeds_tell_much_from_little(tmp_path):
    made_up_rows(tmp_path, LAMS, 4)
    c = compare([tmp_path])
    said = " ".join(verdict(c))
    assert "lam=1 beats lam=0: +0.270 [.215, .324], P(better) = 1.00" in said
    assert re.search("lam=1 beats lam=0.5: .* lam=1 is indistinguishable from lam=0.95: ", said)
    pair = document(c)["pairs"][0]
    assert pair["p_holm"] > 0.05  # six pairs at four seeds: sign flips can show nothing
    assert pair["widest_level"] == 0.875
    assert re.search(r"\[-.\d{3}, -.\d{3}\] 88 %", printed(c, 180, details=True))
    assert "signs p" not in printed(c, 180)


def test_one_seed_has_no_interval_at_all(tmp_path):
    made_up_rows(tmp_path, LAMS, 1)
    c = compare([tmp_path])
    assert document(c)["rows"][0]["interval"] is None
    assert any("there is only one seed" in note for note in c.notes)
    table = printed(c, 140).split("learning curves and cost")[0]
    assert "[" not in table
    assert "1.00" not in table  # neither a chance nor a p


def test_equal_rows_and_single_rows_and_strangers(tmp_path):
    for seed in range(6):
        made_up_run(tmp_path / f"a{seed}", seed=seed, after=0.5 + seed / 50)
        made_up_run(tmp_path / f"b{seed}", seed=seed, after=0.5 + seed / 50, whiten="none")
        made_up_run(tmp_path / f"c{seed}", seed=seed + 50, after=0.5, whiten="group")
    assert "equal in every seed" in " ".join(verdict(compare(tmp_path.glob("[ab]*"))))
    assert "nothing to compare" in verdict(compare(tmp_path.glob("a*")))[0]
    c = compare(tmp_path.glob("[bc]*"))
    assert all(p.unpaired for p in c.pairs)
    assert any("share no seed" in note for note in c.notes)
    assert printed(c, 80)


def test_unequal_token_budgets_are_noted(tmp_path):
    made_up_run(tmp_path / "a", seed=0, after=0.5)
    path = made_up_run(tmp_path / "b", seed=0, after=0.5, rollout={"prompts": 3})
    summary = json.loads((path / "summary.json").read_text()) | {"tokens": 12000}
    (path / "summary.json").write_text(json.dumps(summary))
    assert any("generated 2.0 times as many" in note for note in compare([tmp_path]).notes)


# ---------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"task__name": "reverse"}, "task.name"),
        ({"task__digits": 3}, "task.digits"),
        ({"train__tokens": 5000}, "train.tokens"),
        ({"train__steps": 8}, "train.steps"),
        ({"eval__samples": 64}, "eval.samples"),
    ],
)
def test_runs_on_another_scale_are_refused_by_name(tmp_path, config, said):
    made_up_run(tmp_path / "one", seed=0, after=0.5)
    made_up_run(tmp_path / "other", seed=0, after=0.6, **config)
    with pytest.raises(UsageError, match=f"different {said}.*/one, .*/other; use --force"):
        compare([tmp_path])
    c = compare([tmp_path], force=True)
    assert f"NOT ON ONE SCALE: {said}" in c.title
    assert said in printed(c, 80)


def test_half_written_and_broken_folders_are_skipped_by_name(tmp_path):
    made_up_run(tmp_path / "whole", seed=0, after=0.5)
    made_up_run(tmp_path / "half", seed=1, after=0.5, finished=False)
    made_up_run(tmp_path / "torn", seed=2, after=0.5)
    (tmp_path / "torn" / "recipe.yaml").write_text("seed: [")
    made_up_run(tmp_path / "blank", seed=3, after=0.5)
    (tmp_path / "blank" / "summary.json").write_text("{}")
    made_up_run(tmp_path / "binary", seed=4, after=0.5)
    (tmp_path / "binary" / "metrics.jsonl").write_bytes(b"\xff\xfe")
    c = compare([tmp_path])
    assert c.rows[0].seeds == [0]
    assert set(c.gathered.skipped) == {"half", "torn", "blank", "binary"}
    assert "not valid YAML" in c.gathered.skipped["torn"]
    assert "metrics.jsonl: line 1 cannot be read" in c.gathered.skipped["binary"]
    assert "not finished (it is at step 6)" in c.gathered.skipped["half"]
    assert "half" in printed(c, 80)
    with pytest.raises(UsageError, match="no finished run to compare: half: not finished"):
        compare([tmp_path / "half"])
    with pytest.raises(RlzooError, match="not a run folder"):
        compare([tmp_path / "nowhere"])
    (tmp_path / "scores.jsonl").write_text('{"name": "grpo", "seed": 0, "score": 0.5}\n')
    with pytest.raises(UsageError, match=r"scores.jsonl .* in a \.csv or \.tsv file"):
        compare([tmp_path / "scores.jsonl"])


def test_a_cut_off_metrics_line_costs_only_itself(tmp_path):
    path = made_up_run(tmp_path / "a", seed=0, after=0.5)
    with open(path / "metrics.jsonl", "a") as file:
        file.write('{"step": 7, "rew')
    assert read_record(path).learning_curve[-1] == (6, 6000, 0.5)


# ---------------------------------------------------------------- tables


@pytest.mark.parametrize("width", [80, 140, 180])
def test_tables_fit_and_cut_nothing_off(compared, width):
    text = printed(compared, width)
    assert max(map(len, text.splitlines())) <= width
    assert "…" not in text
    for row in compared.rows:
        assert f"{fmean(row.scores):.3f} [" in text
    assert text.count("▲") == 3


def test_two_way_tables(tmp_path, capsys):
    rows = {
        f"{e}{lam}{w}": (0.5, {"estimator": {"name": e} | ({"lam": lam} if lam is not None else {}),
                               "whiten": w})
        for e, lam in (("gae", 0.0), ("gae", 1.0), ("mc", None)) for w in ("none", "batch")
    }  # fmt: skip
    made_up_rows(tmp_path, rows, 2)
    c = compare([tmp_path])
    table = two_way(c, "lam")
    assert (table.key, table.columns) == ("estimator.lam", ["0", "1", "-"])
    assert set(table.rows) == {"gae whiten=none", "gae whiten=batch", "mc whiten=none",
                               "mc whiten=batch"}  # fmt: skip
    assert ("mc whiten=none", "0") not in table.cells
    assert two_way(c, "estimator").columns == ["gae", "mc"]
    with pytest.raises(UsageError, match=r"do not differ in 'gamma' \(they differ in: "):
        two_way(c, "gamma")
    assert command(tmp_path, "--by", "lam", "--by", "whiten") == 0
    out = capsys.readouterr().out
    assert "by estimator.lam" in out
    assert "by whiten" in out


def test_main_effects_average_over_the_other_key_within_a_seed(tmp_path):
    rows = {f"{e}{lam}": (0.4 + 0.1 * (e == "mc") + 0.2 * lam, {"estimator": {"name": e}, "x": lam})
            for e in ("gae", "mc") for lam in (0.0, 0.5, 1.0)}  # fmt: skip
    made_up_rows(tmp_path, rows, 4)
    c = compare([tmp_path])
    scores = {tuple(row.values.values()): np.array(row.scores) for row in c.rows}
    effects = {(e.a, e.b): e for e in main_effects(c)}
    assert len(effects) == 4  # one pair of estimators, three of numbers
    by_seed = np.mean([scores["mc", x] - scores["gae", x] for x in (0.0, 0.5, 1.0)], axis=0)
    of_estimators = effects["mc", "gae"].contrast
    assert of_estimators.mean == pytest.approx(by_seed.mean())
    assert of_estimators.p == pytest.approx(scipy.stats.ttest_1samp(by_seed, 0).pvalue, rel=1e-3)
    assert effects["1", "0"].contrast.mean == pytest.approx(0.2, abs=0.05)
    assert len(document(c)["main_effects"]) == 4
    assert main_effects(compare(sorted(tmp_path.glob("*0.0--*")))) == []  # one key differs
    shutil.rmtree(tmp_path / "mc1.0--seed0")
    assert main_effects(compare([tmp_path])) == []  # a run is missing


def test_a_sweep_of_one_number_is_drawn_against_it_first(compared, tmp_path):
    assert curves(compared)[0].name.startswith("response")
    rows = {f"{e}": (0.5, {"estimator": {"name": e}}) for e in ("gae", "mc")}
    made_up_rows(tmp_path, rows, 2)
    assert curves(compare([tmp_path]))[0].name == "held-out"


def test_markdown_is_a_table(compared):
    text = markdown(blocks(compared, [two_way(compared, "lam")]))
    tables = [part.splitlines() for part in text.split("\n\n") if part.startswith("|")]
    assert len(tables) == 3
    assert all(len({line.count("|") for line in table}) == 1 for table in tables)
    assert "indistinguishable" in text


ODD = (
    "x\n\\input{/etc/passwd}\n%", '=HYPERLINK("http://x/"&A2)', "@SUM(1+1)", "+1+cmd", "-2+3",
    "\t=1+1", "a\r=1+1", "a|b\n\n# c", "<img src=x>", "![i](http://x)", "a^b~c", "x\u2028=1",
    "\x1b[2Jx", "\u202egnp.exe", "-0.5",
)  # fmt: skip


def odd_sweep(folder, where, odd):
    """A sweep in which a name is `odd`: a row's label, a key, the folder of a run, ..."""
    place = made_up_sweep(folder, TWO, 3)
    index = json.loads((place / "sweep.json").read_text())
    row = index["rows"][0]
    if where == "label":
        row["label"] = odd
    elif where in ("key", "value"):
        row["values"] = {odd: 1} if where == "key" else {"estimator.name": odd}
    elif where == "folder":
        former, row["runs"][0] = row["runs"][0], odd.replace("/", "")
        there = (place / former).rename(place / row["runs"][0])
        (there / "summary.json").unlink()
        (there / "failed.json").write_text(json.dumps({"reason": odd}))
    elif where == "metric":
        for path in [*place.glob("*/summary.json"), *place.glob("*/metrics.jsonl")]:
            text = path.read_text().replace('"accuracy"', json.dumps(odd))
            path.write_text(text.replace('"eval/accuracy"', json.dumps(f"eval/{odd}")))
    (place / "sweep.json").write_text(json.dumps(index))
    if where == "first line":
        (place / "sweep.json").unlink()
        for path in place.glob("lam=0.5-*/recipe.yaml"):
            path.write_bytes(b"# " + odd.encode() + path.read_bytes()[9:])
    return place


@pytest.mark.parametrize("where", ["label", "key", "value", "folder", "metric", "first line"])
def test_a_name_that_a_file_gives_stays_within_its_cell(tmp_path, where, capsys):
    for i, odd in enumerate(ODD[:: 1 if where == "label" else 3]):
        if where == "first line" and not odd.isprintable():
            continue  # not YAML
        place = odd_sweep(tmp_path / str(i), where, odd)
        shown = {}
        for form in ("--latex", "--csv", "--markdown"):
            assert command(place, "--force", form) == 0
            shown[form] = capsys.readouterr().out
            assert printable(shown[form]) == shown[form]
        live = [line for line in shown["--latex"].splitlines() if not line.startswith("% ")]
        assert live[0].startswith(r"\begin{tabular}"), odd
        assert not re.search(r"\\(input|write)|[\^~]", "".join(live))
        rows = list(csv.reader(io.StringIO(shown["--csv"])))
        assert len(rows) == 3, odd
        for cell in (cell for row in rows for cell in row):
            assert not re.match(r"\s*[=+@-]", cell) or numbers.is_number(cell)
        for part in shown["--markdown"].split("\n\n"):
            table = [re.findall(r"(?<!\\)\|", x) for x in part.splitlines() if x[:1] == "|"]
            assert len(set(map(len, table))) < 2, odd
        assert not re.search(r"(?<!\\)<|\]\(|^#", shown["--markdown"], re.MULTILINE)


def test_sparklines_share_a_scale_and_numbers_are_short():
    assert sparkline([0, 1], 5, (0, 1)) == "▁█"
    assert sparkline([0.5, 0.5], 5, (0, 1)) in ("▅▅", "▄▄")
    assert len(sparkline(range(100), 10, (0, 99))) == 10
    assert [thousands(v) for v in (None, 12, 25188, 1.2e6)] == ["-", "12", "25.2k", "1.2M"]
    assert numbers.chance(0.9999) == "> .99"
    assert numbers.chance(1.0) == "1.00"
    assert numbers.chance(0.5) == ".50"
    assert numbers.bracket(stats.Interval(-0.05, 1.5)) == "[-.050, 1.500]"
    assert numbers.bracket(stats.Interval(-0.0004, 0.5)) == "[.000, .500]"
    assert [numbers.signed(x) for x in (-0.0004, 0.0, -0.12)] == ["+0.000", "+0.000", "-0.120"]


def test_json_is_one_document(eight, capsys):
    assert command(eight, "--json", "--by", "lam") == 0
    out = json.loads(capsys.readouterr().out)
    assert {"title", "rows", "pairs", "verdict", "notes", "skipped", "failed"} <= set(out)
    assert out["rows"][0]["interval"] == sorted(out["rows"][0]["interval"])
    assert len(out["two_way"][0]["cells"]) == 4


# ---------------------------------------------------------------- the report


def test_the_report_stands_alone(eight, tmp_path):
    (tmp_path / "runs").mkdir()
    assert command(eight, "--html", tmp_path / "report.html", "--by", "lam") == 0
    page = (tmp_path / "report.html").read_text()
    assert page.count("<svg") == 4
    assert "prefers-color-scheme: dark" in page
    # nothing is fetched: no address but namespaces' names, no script but the page's own, no link
    addresses = set(re.findall(r'(?:src|href)="([^"]*)"', page))
    assert all(a.startswith("#") for a in addresses)
    assert page.count("<script") == page.count("<script>") == 1
    assert not re.search(r"<link|@import|url\((?!#)", page)
    # colours follow the page, and every reference has its target
    ids = re.findall(r'\bid="([^"]*)"', page)
    assert len(ids) == len(set(ids))
    assert {a[1:] for a in addresses} <= set(ids)
    assert set(re.findall(r"url\(#([^)]*)\)", page)) <= set(ids)
    for variable in set(re.findall(r"var\(--(\w+)", page)) - {"tint"}:
        assert page.count(f"--{variable}:") == 2, variable


def test_figures_and_tables_have_the_same_intervals(eight):
    c = compare([eight])
    [bars] = [curve for curve in curves(c) if curve.name == "finals"]
    drawn = {s.row: (s.low[0], s.high[0]) for s in bars.series if s.low}
    assert drawn == {i: tuple(stats.t_interval(row.scores)) for i, row in enumerate(c.rows)}
    assert [len(s.y) for s in bars.series if not s.low] == 4 * [8]  # and each run is a dot


def test_few_seeds_are_lines_and_many_a_band(eight, tmp_path):
    def held_out(*paths):
        return next(curve for curve in curves(compare(paths)) if curve.name == "held-out").series

    many = held_out(eight)
    assert [(s.form, s.low is None) for s in many] == 4 * [("line", False)]
    made_up_rows(tmp_path, LAMS, 3)
    few = held_out(tmp_path)
    assert [s.form for s in few] == 4 * [*3 * ["thin"], "line"]
    assert not any(s.low for s in few)


def test_curves_are_over_tokens_steps_or_seconds(eight):
    """What the runs did not record is over steps."""
    c = compare([eight])
    seen = {}
    for c.axis in ("tokens", "steps", "seconds"):
        curve = next(curve for curve in curves(c) if curve.name == "held-out")
        seen[c.axis] = curve.x, list(curve.series[0].x)
    (_, tokens), (_, steps) = seen["tokens"], seen["steps"]
    assert [name for name, _ in seen.values()] == ["tokens generated", "step", "step"]
    assert tokens == [1000 * n for n in steps]
    assert seen["seconds"] == seen["steps"]


def test_a_claim_against_the_reference_of_the_table_is_in_the_verdict(tmp_path):
    """The best row is another, by little: the verdict names both pairs."""
    up = {"whiten": "none"}
    made_up_rows(tmp_path, {"a": (0.7, {}), "b": (0.5, up), "c": (0.701, {"whiten": "group"})}, 8)
    c = compare([tmp_path])
    assert c.best.label != c.reference.label
    assert [p.claimed for p in c.pairs] == [True, False, True]
    best, worst = c.best.label, c.rows[1].label
    said = verdict(c)
    assert said[0].startswith(f"{best} beats {worst}: ")
    assert said[2] == f"{worst} also scores below the reference {c.reference.label}."


def test_forms_are_printed_or_written(eight, tmp_path, capsys):
    for form in ("latex", "csv", "markdown"):
        assert command(eight, f"--{form}") == 0
        text = capsys.readouterr().out
        assert command(eight, f"--{form}", tmp_path / "out") == 0
        assert (tmp_path / "out").read_text() == text
        assert capsys.readouterr().out.endswith(f"written: {tmp_path / 'out'}\n")
    with pytest.raises(UsageError):
        command(eight, "--latex", tmp_path)


@pytest.mark.landing
def test_plots_as_files(eight, tmp_path):
    assert command(eight, "--plots", tmp_path) == 0
    names = {p.name for p in tmp_path.iterdir()}
    assert {"held-out.svg", "held-out.png", "response-estimator.lam.png", "training.svg"} <= names
    assert (tmp_path / "finals.png").read_bytes()[:4] == b"\x89PNG"
    assert "var(--" not in (tmp_path / "finals.svg").read_text()


def test_text_from_outside_is_escaped(tmp_path):
    made_up_run(tmp_path / "a", seed=0, after=0.5, estimator={"name": "<b>x</b>"})
    made_up_run(tmp_path / "b", seed=0, after=0.6, estimator={"name": "[red]y"})
    c = compare([tmp_path])
    assert "<b>x</b>" not in body(page_blocks(c))
    assert "[red]y" in printed(c, 80)


def test_single_seeds_and_failures_still_make_a_report(tmp_path):
    made_up_rows(tmp_path, LAMS, 1)
    failed = tmp_path / "bad--seed0"
    failed.mkdir()
    (failed / "recipe.yaml").write_text("seed: 0\n")
    (failed / "failed.json").write_text(json.dumps({"reason": "reward raised"}))
    c = compare([tmp_path])
    assert "failed: reward raised" in body(page_blocks(c))
    assert "reward raised" in printed(c, 80)
