"""Lines of a public log: verl's PPO on GSM8K with Qwen2.5-0.5B (verl-data, branch `experiments`, at
f07af329), a few fields of a few steps, typed from it."""

import json

import rlzoo

FIELDS = (
    "critic/vf_loss", "critic/grad_norm", "actor/entropy_loss", "actor/pg_loss", "actor/grad_norm",
    "critic/score/mean", "critic/score/max", "critic/advantages/mean", "critic/advantages/max",
    "critic/advantages/min", "critic/returns/mean", "critic/returns/max", "critic/values/mean",
    "critic/values/max", "critic/values/min", "val/test_score/openai/gsm8k",
)  # fmt: skip
# None: no evaluation at this step.
ROWS = {
    0: (14.012, 950.052, 0.526, -0.018, 8.138, 0.012, 1.0, 0.0, 2.239, -2.501, 0.012, 0.0, -1.819,
        10.438, -12.812, None),
    9: (0.082, 46.897, 0.539, 0.005, 2.066, 0.031, 1.0, -0.0, 2.749, -3.158, 0.027, 0.0, 0.337,
        1.453, -0.688, 0.013),
    20: (0.129, 72.491, 0.511, -0.044, 1.923, 0.207, 1.0, -0.0, 2.325, -22.385, 0.173, 1.0, -0.231,
         8.125, -0.383, None),
    29: (0.191, 71.877, 0.328, 0.010, 1.974, 0.367, 1.0, -0.0, 2.243, -18.378, 0.328, 1.0, 0.783,
         9.875, 0.103, 0.458),
    59: (0.123, 52.660, 0.174, -0.007, 2.159, 0.559, 1.0, 0.0, 1.277, -15.654, 0.496, 1.0, 0.349,
         6.531, -0.078, 0.495),
}  # fmt: skip


def test_verls_public_log(tmp_path):
    lines = []
    for step, values in ROWS.items():
        said = zip(FIELDS, values, strict=True)
        parts = [f"{name}:{x:.3f}" for name, x in said if x is not None]
        lines.append(f"\x1b[36m(main_task pid=54569)\x1b[0m step:{step} - " + " - ".join(parts))
    (tmp_path / "verl.log").write_text("\n".join(lines) + "\n")
    rlzoo.verb("import", tmp_path / "verl.log", out=tmp_path / "run")
    read = [json.loads(x) for x in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    scores = {line["step"]: line["eval/score"] for line in read if "eval/score" in line}
    assert scores == {10: 0.013, 30: 0.458, 60: 0.495}
    (step,) = [line for line in read if line["step"] == 21]
    assert step["reward/mean"] == 0.207
    assert (step["values/max"], step["returns/max"], step["advantages/min"]) == (
        8.125,
        1.0,
        -22.385,
    )
    # A run that learned: right. It does not mention values that no return reaches.
    assert rlzoo.doctor(tmp_path / "run")["findings"] == []
