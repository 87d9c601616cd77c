"""The maintainers' benchmark runs, and says what it cannot measure."""

import json
import subprocess
import sys

import pytest

from helpers import ROOT

pytestmark = pytest.mark.process
BENCH = [sys.executable, str(ROOT / "tests" / "benchmarks" / "bench")]


def test_a_case_gives_a_row_with_its_time_and_memory(tmp_path):
    words = ["estimators", "--repeat", "1", "--json"]
    done = subprocess.run([*BENCH, *words], capture_output=True, text=True, cwd=tmp_path)
    rows = json.loads(done.stdout)["rows"]
    assert rows
    assert not [row for row in rows if "error" in row]
    assert all(row["cpu_seconds"] >= 0 and row["peak_mb"] > 0 for row in rows)


def test_phases_have_the_work_of_their_products(tmp_path):
    """No phase is faster than its products; an update is three passes, so it has most."""
    words = ["phases", "--recipes", "grpo", "--repeat", "1", "--json"]
    done = subprocess.run([*BENCH, *words], capture_output=True, text=True, cwd=tmp_path)
    rows = {row["case"].rpartition(" ")[2]: row for row in json.loads(done.stdout)["rows"]}
    assert [*rows] == ["gen", "columns", "adv", "update"]
    assert all(row["bound"] <= row["cpu_seconds"] for row in rows.values())
    assert rows["update"]["gflop"] > rows["gen"]["gflop"] > 0


@pytest.mark.landing
def test_a_decoded_token_of_fixed_shape_takes_fewer_launches_and_waits():
    script = ROOT / "tests" / "benchmarks" / "decoding.py"
    words = [sys.executable, str(script), "--layers", "2", "--json"]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    rows = {(row["lora"], row["fixed"]): row for row in json.loads(done.stdout.splitlines()[-1])}
    for lora in (False, True):
        grows, fixed = rows[lora, False], rows[lora, True]
        assert fixed["launches"] < grows["launches"] / 2
        assert fixed["waits"] < grows["waits"]
        assert fixed["cache"] == grows["cache"] / 2  # bfloat16
        assert fixed["graphs"] > grows["graphs"] == 0


@pytest.mark.parametrize(
    ("words", "key"),
    [
        (["no_such_case"], "no case"),
        (["--model", "smal"], "small"),
        (["--repeat", "0"], "--repeat"),
    ],
)
def test_what_cannot_be_measured_is_refused_in_one_line(tmp_path, words, key):
    done = subprocess.run([*BENCH, *words], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode
    assert key in done.stderr
    assert len(done.stderr.splitlines()) == 1
