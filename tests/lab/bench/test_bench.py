"""Benchmarks: the arithmetic, the cases on a model that is small, and one command from outside."""

import argparse
import ast
import importlib.util
import io
import json
import re
import runpy
import sys
from pathlib import Path

import pytest
import torch

from helpers import ROOT
from helpers.forks import finished
from helpers.scripts import script
from rlzoo.cli import main, parse
from rlzoo_lab.bench import cases as bench_cases
from rlzoo_lab.bench import command as bench_command
from rlzoo_lab.bench import common as bench_common
from rlzoo_lab.bench import parts as bench_parts
from rlzoo_lab.bench import runner as bench
from rlzoo_lab.bench import scaling as bench_scaling
from rlzoo_lab.bench import tables as bench_tables

NANO = """
vocabulary: 120
architecture: {hidden_size: 16, intermediate_size: 32, num_hidden_layers: 1,
               num_attention_heads: 2, max_position_embeddings: 64}
ends: 0.3
words: [task=addition, rollout.prompts=2, rollout.samples=4, rollout.max_new_tokens=6]
warmup: 1
repeat: 2
peer_rows: [8]
scaling: {samples: [2, 4, 6], length: [2, 4, 6]}
"""
REWARD = ["rewards=[python]", "rewards.python.function=rlzoo_lab.bench.common:reward"]
PEER = runpy.run_path(str(bench.PEER))


@pytest.fixture
def nano(tmp_path, monkeypatch):
    """A workload `nano`, in a ./configs of its own."""
    (tmp_path / "configs" / "bench").mkdir(parents=True)
    (tmp_path / "configs" / "bench" / "nano.yaml").write_text(NANO)
    monkeypatch.chdir(tmp_path)
    return bench_command.workload_of("nano")


@pytest.fixture
def spec(model_dir, words):
    threads = torch.get_num_threads()
    asked = {"threads": threads, "warmup": 1, "repeat": 2}
    return {**asked, "words": ["recipe=grpo", *words, "train.minibatches=1", *REWARD]}


# ---------------------------------------------------------------- arithmetic


def test_rates_are_medians_of_rates():
    samples = [
        {"tokens": 10, "cpu": 1.0, "wall": 2.0, "phases": {"gen": 0.4}},
        {"tokens": 40, "cpu": 2.0, "wall": 2.0, "phases": {"gen": 0.5, "update": 1.0}},
        {"tokens": 90, "cpu": 3.0, "wall": 2.0, "phases": {"gen": 0.6, "update": 2.0}},
    ]
    found = bench.summary(samples)
    assert found["tokens"] == 40
    assert found["cpu_seconds"] == 2.0
    assert found["cpu_range"] == [1.0, 3.0]
    assert found["tokens_per_cpu_second"] == 20  # of 10, 20, 30; not 40 / 2 by luck
    assert found["tokens_per_wall_second"] == 20
    assert found["phases"] == {"gen": 0.5, "update": 1.0}
    uneven = bench.summary([{"tokens": 8, "cpu": 1.0}, {"tokens": 1, "cpu": 1.0},
                            {"tokens": 9, "cpu": 3.0}])  # fmt: skip
    assert uneven["tokens_per_cpu_second"] == 3  # 8, 1 and 3; the medians' quotient is 8
    assert "tokens_per_wall_second" not in uneven


def test_ratios_are_to_rlzoo_on_the_same_case():
    def row(by, rate, peak, case="a", model="small"):
        given = {"part": "step", "case": case, "model": model, "by": by, "tokens": 5}
        return {**given, "tokens_per_cpu_second": rate, "peak_mb": peak}

    rows = [row("rlzoo", 300, 500), row("trl", 100, 1000), row("trl", 150, 400),
            row("trl", 7, 7, case="b"), row("trl", 7, 7, model="medium")]  # fmt: skip
    rows.append({"part": "step", "case": "a", "model": "small", "by": "before", "error": "no"})
    found = bench.with_ratios(rows)
    assert [r.get("times_faster") for r in found] == [None, 3.0, 2.0, None, None, None]
    assert [r.get("memory_share") for r in found] == [None, 0.5, 1.25, None, None, None]


def test_a_line_is_fitted_exactly_and_a_parabola_is_not():
    x = [1.0, 2.0, 4.0, 8.0]
    line = bench_scaling.fit(x, [3 + 2 * a for a in x])
    assert line == pytest.approx({"start": 3, "slope": 2, "r2": 1})
    assert bench_scaling.fit(x, [a * a for a in x])["r2"] < 0.97
    flat = bench_scaling.fit(x, [5.0] * 4)
    assert flat == pytest.approx({"start": 5, "slope": 0, "r2": 1})


@pytest.mark.parametrize("name", ["plot.svg", "plot.png"])
def test_the_plot_is_small(name, tmp_path):
    rows = [
        {"model": "small", "axis": axis, "x": x, "cpu_seconds": 0.1 * x, "peak_mb": 400 + x}
        for axis in ("samples", "length")
        for x in (1, 2, 4)
    ]
    bench_scaling.write_plot(rows, tmp_path / name)
    assert 2_000 < (tmp_path / name).stat().st_size < 100_000


# ---------------------------------------------------------------- cases


def test_a_step_is_counted_in_tokens_and_phases(spec):
    found = bench_cases.step(spec)["samples"]
    assert len(found) == 2
    for sample in found:
        assert 16 <= sample["tokens"] <= 16 * 5
        assert sample["cpu"] > 0
        assert 0 < sum(sample["phases"].values()) <= sample["cpu"] + 0.05
        assert {"gen", "update"} <= set(sample["phases"])


def test_a_peer_gets_the_prompts_of_the_steps(spec):
    from rlzoo.rollout.sample import draw

    texts = bench_cases.prompts(spec)["prompts"]
    world = bench_cases._world(spec)
    drawn = [e.prompt for i in range(3) for e in draw(world, "train", 4, "train", i)]
    assert texts == drawn


@pytest.mark.process
def test_sampling_and_the_head_are_measured(spec):
    (one, _) = bench_cases.sampling(spec)["samples"]
    assert 16 <= one["tokens"] <= 16 * 5
    for how in ("score", "plain", "trunk"):
        found = bench_cases.head({**spec, "rows": 3, "steps": 7, "how": how})
        assert [s["tokens"] for s in found["samples"]] == [21, 21]


@pytest.mark.process
def test_estimators_are_measured_on_ragged_rows(zoo):
    base = {"rows": 16, "steps": 40, "warmup": 0, "repeat": 1}
    for name in list(zoo.estimators)[::5]:
        (sample,) = bench_cases.estimator({**base, "name": name})["samples"]
        assert 16 * 10 < sample["tokens"] < 16 * 40


@pytest.mark.parametrize("share", [0.05, 0.4])
def test_eos_has_the_probability_that_a_workload_says(nano, share, tmp_path):
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder = tmp_path / "model"
    bench_cases.model({**nano, "ends": share, "folder": str(folder)})
    model = AutoModelForCausalLM.from_pretrained(folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    assert len(tokenizer) == model.config.vocab_size == 120
    ids = tokenizer(["17+25=", "3+44=4"], return_tensors="pt")["input_ids"]
    found = model(ids).logits.softmax(-1)[..., tokenizer.eos_token_id]
    assert found.mean().item() == pytest.approx(share, rel=0.3)


def test_the_shipped_workloads_have_the_size_they_say():
    from transformers import LlamaConfig, LlamaForCausalLM

    for name, millions in (("small", 1.06), ("medium", 60.04)):
        workload = bench_command.workload_of(name)
        config = LlamaConfig(vocab_size=workload["vocabulary"], **workload["architecture"])
        with torch.device("meta"):
            model = LlamaForCausalLM(config)
        assert sum(p.numel() for p in model.parameters()) / 1e6 == pytest.approx(millions, abs=0.01)


# ---------------------------------------------------------------- the peer's side


def test_the_peer_needs_nothing_of_rlzoo():
    trees = [ast.parse(Path(file).read_text()) for file in (bench.PEER, bench_common.__file__)]
    names = {
        getattr(node, "module", None) or alias.name
        for tree in trees
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    }
    assert names
    assert not [name for name in names if name.split(".")[0] == "rlzoo"]


def test_the_reward_is_mixed_and_a_function_of_the_text():
    prompts = [f"{i}+{j}=" for i in range(60) for j in range(60)]
    found = bench_common.reward(prompts, prompts)
    assert found == bench_common.reward(prompts, prompts)
    assert sum(found) / len(found) == pytest.approx(1 / 6, abs=0.02)
    assert PEER["reward"](prompts, prompts) == found


def test_a_meter_counts_from_one_step_to_the_next():
    meter = PEER["Meter"]()
    twice = meter.timed("gen", lambda x: 2 * x)
    meter.tokens = 7
    meter.end_step()  # the first: how long it took is not known
    meter.tokens = 5
    assert twice(21) == 42
    meter.end_step()
    (sample,) = meter.samples
    assert sample["tokens"] == 5
    assert list(sample["phases"]) == ["gen"]
    assert sample["wall"] > 0
    assert meter.tokens == 0
    assert meter.phases == {}


@pytest.mark.process
def test_a_python_without_the_trainer_says_so(nano, tmp_path):
    asked = bench.Bench(parse(["bench", "step", "--peer-python", sys.executable]), tmp_path)
    row = asked.run_peer({"trainer": "NoTrainer", "threads": 1})
    assert sys.executable in row["error"]
    assert "pip install" in row["error"]


def test_all_rows_of_a_step_are_one_optimizer_step():
    spec = {"prompts": ["x"] * 12, "steps": 3, "samples": 8, "rows": 16}
    assert PEER["passes"](spec) == {
        "per_device_train_batch_size": 16,
        "gradient_accumulation_steps": 2,
    }


# ---------------------------------------------------------------- the command


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["hed"], "no case 'hed'; did you mean 'head'?"),
        (["--model", "smal"], "no workload 'smal'; did you mean 'small'?"),
        (["--recipes", "gprо"], "--recipes: there is no recipe"),
        (["--repeat", "0"], "--repeat must be at least 1. Got 0"),
        (["--threads", "0"], "--threads must be at least 1. Got 0"),
        (["head", "--peer", "trl"], "--peer trl requires `bench step`"),
        (["step", "--peer", "trl", "--peer-python", "/no/such"], "there is no file '/no/such'"),
        (["step", "--against", "/"], "/ is not a checkout of rlzoo"),
        (["step", "--plot", "x.svg"], "--plot requires `bench scaling`"),
        (["scaling", "--plot", "x.pdf"], "must end in .svg or .png"),
        (["step", "--out", "no/such/x.json"], "there is no folder no/such"),
    ],
)
def test_what_cannot_be_measured_is_said_at_once(words, text, capsys):
    assert main(["bench", *words]) == 2
    assert text in capsys.readouterr().err


def test_without_trl_one_line_says_what_to_install(monkeypatch, capsys):
    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda n: None if n == "trl" else real(n))
    assert main(["bench", "step", "--peer", "trl"]) == 2
    assert "pip install 'trl" in capsys.readouterr().err


def test_a_wheel_has_no_peer_and_says_so(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(bench_command, "PEER", tmp_path / "peer_trl.py")
    assert main(["bench", "step", "--peer", "trl"]) == 2
    assert "tests/benchmarks/peer_trl.py runs only in a checkout" in capsys.readouterr().err


def forked(bench, command, environment):
    """As `Bench.start`, of a case, in a process that need not import torch first."""
    return finished(bench_cases.main, command[-1])


@pytest.mark.landing
@pytest.mark.process
def test_a_command_measures_and_prints_one_document(nano, capsys, monkeypatch):
    monkeypatch.setattr(bench.Bench, "start", forked)
    assert main(["bench", "sampling", "--model", "nano", "--json", "--out", "x.json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert json.loads(Path("x.json").read_text()) == document
    (row,) = document["rows"]
    assert set(document) == {"version", "machine", "threads", "rows"}
    told = "part case model by tokens cpu_seconds wall_seconds peak_mb repeat versions"
    told += " tokens_per_cpu_second tokens_per_wall_second"
    assert set(told.split()) <= set(row)
    assert 8 <= row["tokens"] <= 48
    assert 100 < row["peak_mb"] < 2000


def test_a_run_is_timed_from_the_end_of_a_step_to_the_next(tmp_path):
    seconds, tokens = [9.0, 10.0, 12.0, 15.0, 19.0], [10, 20, 40, 70, 110]
    lines = [{"step": 0, "eval/score": 0.5}]
    lines += [{"step": i, "perf/seconds": s, "perf/tokens": t}
              for i, (s, t) in enumerate(zip(seconds, tokens, strict=True), 1)]  # fmt: skip
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(x) + "\n" for x in lines))
    (tmp_path / "summary.json").write_text('{"peak_rss_mb": 7.0}')
    assert bench_parts.between_steps(tmp_path, 1) == {
        "tokens": 30, "wall_seconds": 3.0, "tokens_per_wall_second": 10.0, "peak_mb": 7.0,
        "repeat": 3}  # fmt: skip


@pytest.mark.study
def test_processes_are_timed_from_step_to_step_and_compared_with_one(nano, capsys):
    words = ["bench", "processes", "--model", "nano", "--recipes", "dr_grpo", "--repeat", "1"]
    assert main([*words, "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert [(r["case"], r["processes"]) for r in rows] == [("dr_grpo", 1), ("dr_grpo", 2)]
    one, two = rows
    assert one["tokens"] == two["tokens"] > 0  # the same rollout
    assert one["wall_share"] is None
    assert two["wall_share"] == pytest.approx(two["wall_seconds"] / one["wall_seconds"])
    assert two["tokens_per_wall_second"] == pytest.approx(two["tokens"] / two["wall_seconds"])
    text = bench_tables.markdown(rows)
    assert "| dr_grpo, 1 process |" in text
    assert "| dr_grpo, 2 processes |" in text


@pytest.mark.landing
@pytest.mark.process
def test_processes_that_fail_are_a_row_with_the_last_word(tmp_path, monkeypatch):
    asked = bench.Bench(parse(["bench"]), tmp_path)
    monkeypatch.setattr(asked, "start", lambda command, environment: finished(main, command[3:]))
    monkeypatch.setattr(asked, "variants", lambda workload: [("grppo", ["recipe=grppo"], None)])
    (row,) = bench_parts.processes(asked, {"warmup": 0, "repeat": 1})
    assert "did you mean 'grpo'" in row["error"]


@pytest.mark.landing
@pytest.mark.process
def test_a_case_that_fails_is_a_row_and_an_exit_status(tmp_path, monkeypatch, capsys):
    row = bench.Bench(parse(["bench"]), tmp_path).run({"case": "estimator", "name": "gaee"})
    assert "did you mean 'gae'?" in row["error"]
    failed = {"case": "gaee", **row}
    monkeypatch.setitem(bench_parts.PARTS, "estimators", lambda bench, workload: iter([failed]))
    assert main(["bench", "estimators"]) == 1
    assert "did you mean 'gae'?" in " ".join(capsys.readouterr().out.split())


def test_tables_fit_80_columns():
    def row(by, **more):
        return {"part": "step", "model": "medium", "case": "ppo_gae shared", "by": by,
                "tokens": 32768.0, "cpu_seconds": 123.4, "tokens_per_cpu_second": 12345.6,
                "tokens_per_wall_second": 12345.6, "peak_mb": 12345.6, **more}  # fmt: skip

    failed = {
        "part": "step",
        "model": "medium",
        "case": "grpo KL",
        "by": "before",
        "error": "oh no",
    }
    rows = [
        row("rlzoo"),
        row("trl 1.16.0", rows=256, times_faster=12.34, memory_share=1.23),
        failed,
    ]
    from rich.console import Console

    console = Console(width=80, record=True, file=io.StringIO())
    for part in bench_tables.tables({"rows": rows}):
        console.print(part)
    text = console.export_text()
    assert "12.34x" in text
    assert "12,346" in text
    assert "…" not in text
    assert "grpo KL, before: oh no" in text
    assert "| ppo_gae shared, 256 rows | trl 1.16.0 | 32,768 |" in bench_tables.markdown(rows)


def test_the_places_of_the_page_are_parts():
    text = (ROOT / "docs" / "speed.md").read_text(encoding="utf-8")
    places = re.findall(r"<!-- (\w+) -->", text)
    assert {"machine", "step", "processes", "gpu"} <= set(places)
    assert set(places) <= {*bench_parts.PARTS, "machine", "decoding"}
    for name in places:
        assert f"<!-- /{name} -->" in text, name


def test_the_page_leaves_out_columns_that_others_imply_and_older_checkouts():
    head = "| case | by | tokens | tok/CPU s |\n| --- | --- | --- | --- |\n"
    text = f"Steps:\n\n{head}| a | rlzoo | 1 | 2 |\n| a | before | 3 | 4 |\n"
    lines = script("speed").narrow(text).splitlines()
    assert lines[2:] == ["| case | by | tok/CPU s |", "| --- | --- | --- |", "| a | rlzoo | 2 |"]


def test_the_page_has_a_line_for_each_case():
    head = "| case | by | tok/CPU s | MB | faster | mem |\n|---|---|---|---|---|---|\n"
    rows = "| a | rlzoo | 9 | 8 |  |  |\n| a, 6 rows | trl | 3 | 2 | 3.00x | 4.00 |\n"
    lines = script("speed").side_by_side(head + rows + "b: failed").splitlines()
    assert lines[2:] == ["|a|9|8|3.00x|4.00|", "b: failed"]


def test_arguments_stand_alone():
    own = argparse.ArgumentParser()
    bench_command.add_arguments(own)
    assert own.parse_args(["step", "head"]).parts == ["step", "head"]
