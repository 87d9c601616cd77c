"""`rlzoo bench gpu`: the code runs, on a CPU at micro shapes; what its numbers say is a GPU's."""

import json
from pathlib import Path

import pytest

from helpers.forks import finished
from rlzoo.cli import main
from rlzoo_lab.bench import cases as bench_cases
from rlzoo_lab.bench import gpu
from rlzoo_lab.bench import runner as bench


def forked(bench, command, environment):
    """As `Bench.start`, of a case, in a process that need not import torch first."""
    return finished(bench_cases.main, command[-1])


def test_a_machine_without_a_gpu_says_so_in_a_line(capsys):
    assert main(["bench", "gpu"]) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert "finds no CUDA device here" in line
    assert "rlzoo bench gpu --device cpu" in line


def test_a_workload_that_is_no_shape_of_it_is_refused(capsys):
    assert main(["bench", "gpu", "--device", "cpu", "--model", "small"]) == 2
    assert "--model: small has no `long`" in capsys.readouterr().err


@pytest.mark.landing
@pytest.mark.process
def test_the_whole_of_it_runs_on_a_cpu(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(bench.Bench, "start", forked)
    monkeypatch.chdir(tmp_path)
    assert main(["bench", "gpu", "--device", "cpu", "--json", "--out", "x.json"]) == 0
    rows = {row["case"]: row for row in json.loads(capsys.readouterr().out)["rows"]}
    steps = ["ppo_gae own", "ppo_gae shared", "grpo no KL", "grpo KL"]
    values, limits, *asked, head = rows.values()
    assert list(rows)[2:-1] == steps
    assert values["off_mean"] < 1e-5
    assert values["tokens"] == 200
    assert limits["copy_gb_s"] > 0
    for row in asked:
        gen, columns, update = (row["phases"][n] for n in ("gen", "columns", "update"))
        weights = (
            row["copy_share"] * gen * limits["copy_gb_s"] * 1e9 / 4 / 6
        )  # of 4 bytes, 6 tokens
        assert 10_000 < weights < 100_000
        flop = row["mfu"] * (columns + update) * limits["matmul_tflops"] * 1e12
        assert flop / weights / row["tokens"] == pytest.approx(
            {"ppo_gae own": 12.3, "ppo_gae shared": 8, "grpo no KL": 6, "grpo KL": 8}[row["case"]],
            rel=0.05,
        )
    assert head["tokens"] == 64
    table = Path("x.md").read_text()
    for word in ("of copy", "MFU", "device MB", "| ppo_gae shared |", "GB/s"):
        assert word in table


def test_nothing_is_timed_where_values_disagree(zoo, words, monkeypatch):
    from helpers.worlds import world_of

    monkeypatch.setitem(gpu.ROUNDING, "float32", -1.0)
    told = gpu.values(world_of(zoo, words, "grpo"), {"tokens": 16})
    assert "nothing is timed" in told["error"]
