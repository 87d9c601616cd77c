"""docs/vectors: what make.py writes, our functions against it, and the example programs."""

import importlib.util
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from helpers.zoo import ZOO
from rlzoo.ops import whiten

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "docs" / "vectors" / "v1"
CASES = [
    pytest.param(file.stem, case, id=f"{file.stem}-{case['name']}")
    for file in sorted(FOLDER.glob("*.json"))
    for case in json.loads(file.read_text())["cases"]
]


def ours(what, options, **x):
    if what == "gae":
        return ZOO.estimators["gae"](x, **options)
    if what == "groups":
        options = {"grpo": options, "dr_grpo": {}, "rloo": {}}
        return {n: ZOO.estimators[n](x, **own)["advantages"] for n, own in options.items()}
    if what == "whiten":
        return {"whitened": whiten(x["x"], x["response_mask"], **options)}
    leaf = x["log_probs"].clone().requires_grad_() if "log_probs" in x else None
    if what == "clip":
        loss, _ = ZOO.policy_losses["ppo_clip"]({**x, "log_probs": leaf}, **options)
        return {"loss": loss, "gradient": torch.autograd.grad(loss.sum(), leaf)[0]}
    found = {}
    if what == "kl":
        for name in ("k1", "k2", "k3"):
            penalty = ZOO.kl_penalties[name]({**x, "log_probs": leaf})
            found[name] = penalty
            found[f"{name}_gradient"] = torch.autograd.grad(penalty.sum(), leaf)[0]
        return found
    for name in ("token_mean", "seq_mean_token_mean", "seq_mean_token_sum"):
        weights = ZOO.aggregations[name](x)
        parts = [float((weights * x["loss"])[rows].sum()) for rows in x["microbatches"]]
        found |= {f"{name}_weights": weights, f"{name}_parts": parts, name: sum(parts)}
    return found


@pytest.mark.parametrize(("what", "case"), CASES)
def test_our_functions_give_them(what, case):
    inputs = {n: x if n == "microbatches" else torch.tensor(
        x, dtype=torch.int64 if n == "group_ids" else torch.float64)
        for n, x in case["inputs"].items()}  # fmt: skip
    found = ours(what, case["options"], **inputs)
    for name, right in case["outputs"].items():
        got, want = (torch.as_tensor(x, dtype=torch.float64) for x in (found[name], right))
        torch.testing.assert_close(got, want, rtol=0, atol=1e-12, msg=lambda m, n=name: f"{n}: {m}")


def test_the_files_are_what_the_script_writes():
    spec = importlib.util.spec_from_file_location("make_vectors", FOLDER.parent / "make.py")
    make = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(make)
    made = dict(make.documents())
    assert {f.stem: json.loads(f.read_text()) for f in FOLDER.glob("*.json")} == made


@pytest.fixture(params=["python", "jax", "c"])
def program(request, tmp_path):
    source = ROOT / "docs" / "examples" / "vectors"
    if request.param == "jax":
        pytest.importorskip("jax")
    if request.param != "c":
        return [sys.executable, f"{source}.py", request.param]
    if shutil.which("cc") is None:
        pytest.skip("there is no C compiler")
    subprocess.run(["cc", f"{source}.c", "-lm", "-o", tmp_path / "vectors"], check=True)
    return [tmp_path / "vectors"]


def test_the_example_passes_and_notices_a_wrong_number(program, tmp_path):
    def run(folder):
        return subprocess.run([*program, folder], capture_output=True, text=True)

    assert run(FOLDER).returncode == 0, run(FOLDER).stderr
    folder = shutil.copytree(FOLDER, tmp_path / "v1")
    text = (folder / "kl.json").read_text()
    head, _, rest = text.partition('"k3": [[')
    number = rest.split(",")[0]
    wrong = repr(float(number) + 1e-11)
    (folder / "kl.json").write_text(f'{head}"k3": [[{rest.replace(number, wrong, 1)}')
    assert run(folder).returncode == 1
