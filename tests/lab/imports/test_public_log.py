"""Lines of a public log: verl's PPO on GSM8K with Qwen2.5-0.5B (verl-data, branch `experiments`, at
f07af329), a few fields of a few steps, typed from it."""

import copy
import json
import pprint

import pytest

import rlzoo
from rlzoo.cli import main
from rlzoo.recipe.files import parse_yaml

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


SETTINGS = {  # a part of what that log prints first
    "actor_rollout_ref": {
        "actor": {"clip_ratio": 0.2, "entropy_coeff": 0.001, "optim": {"lr": 1e-06},
                  "ppo_mini_batch_size": 64, "shuffle": True},
        "hybrid_engine": True,
        "model": {"external_lib": None, "override_config": {},
                  "path": "Qwen/Qwen2.5-0.5B-Instruct"},
        "rollout": {"n": 1, "stop": ["</a>}", "(pid=1)"], "temperature": 1.0},
    },
    "algorithm": {"adv_estimator": "gae", "gamma": 1.0,
                  "kl_ctrl": {"kl_coef": 0.001, "type": "fixed"}, "lam": 1.0},
    "data": {"max_response_length": 512, "train_batch_size": 256, "train_files": "train.parquet"},
}  # fmt: skip
BETWEEN = (
    "\x1b[36m(main_task pid=7)\x1b[0m No module named 'vllm._version'",
    "\x1b[36m(main_task pid=7)\x1b[0m   from vllm.version import __version__ as VLLM_VERSION",
    "(pid=934604)  'lr': 3.0,",
    "",
)


def imported(tmp_path, settings, glued="", lost=()):
    """The recipe and what is said of a log that prints `settings` with other lines in between."""
    lines = []
    for i, part in enumerate(pprint.pformat(settings, width=60).splitlines()):
        lines += [] if i in lost else [f"\x1b[36m(main_task pid=7)\x1b[0m {part}"]
        lines += [BETWEEN[i % len(BETWEEN)]]
    end = "'temperature': 1.0}},"
    log = "\n".join(lines).replace(end, end + glued)
    assert not glued or glued in log
    steps = "\n".join(f"(main_task pid=7) step:{i} - critic/score/mean:0.5" for i in range(1, 4))
    (tmp_path / "v.log").write_text(f"INFO worker.py -- Started\n{log}\n{steps}\n")
    rlzoo.verb("import", tmp_path / "v.log", out=tmp_path / "run")
    return parse_yaml((tmp_path / "run" / "recipe.yaml").read_text())


@pytest.mark.parametrize(
    "glued", ["", "(pid=934604) ", "(WorkerDict pid=65860) Flash Attention 2.0 only supports {1}"]
)
def test_settings_that_verl_prints_become_keys(tmp_path, glued):
    recipe = imported(tmp_path, SETTINGS, glued)
    assert recipe["actor"] == {"lr": 1e-6, "entropy_coef": 0.001}
    assert recipe["estimator"] == {"name": "gae", "gamma": 1.0, "lam": 1.0}
    assert recipe["model"]["path"] == "Qwen/Qwen2.5-0.5B-Instruct"
    assert recipe["rollout"]["max_new_tokens"] == 512
    assert recipe["train"]["minibatches"] == 4
    assert recipe["kl"] == {"coef": 0.001, "place": "reward"}


@pytest.mark.parametrize(
    ("loss", "reward", "kl"),
    [
        (False, None, {"coef": 0.001, "place": "reward"}),  # before 0.3
        (None, None, {"coef": 0.001, "place": "reward"}),
        (True, None, {"coef": 0.04, "place": "loss"}),
        (False, True, {"coef": 0.001, "place": "reward"}),
        (False, False, {"coef": 0.0}),
        (True, False, {"coef": 0.04, "place": "loss"}),
    ],
)
def test_where_verls_kl_is(tmp_path, loss, reward, kl):
    settings = copy.deepcopy(SETTINGS)
    if loss is not None:
        settings["actor_rollout_ref"]["actor"] |= {"use_kl_loss": loss, "kl_loss_coef": 0.04}
    if reward is not None:
        settings["algorithm"]["use_kl_in_reward"] = reward
    assert imported(tmp_path, settings)["kl"] == kl


def test_overrides_alone_do_not_tell_where_verls_kl_is(tmp_path):
    (tmp_path / "v").mkdir()
    (tmp_path / "v" / "v.log").write_text("step:1 - critic/score/mean:0.5\n")
    words = ["algorithm.kl_ctrl.kl_coef=0.002", "actor_rollout_ref.actor.use_kl_loss=False"]
    (tmp_path / "v" / "overrides.yaml").write_text("".join(f"- {w}\n" for w in words))
    rlzoo.verb("import", tmp_path / "v", out=tmp_path / "run")
    recipe = parse_yaml((tmp_path / "run" / "recipe.yaml").read_text())
    assert recipe["kl"] == {"coef": 0.0}  # its default since 0.3: not in the reward


@pytest.mark.parametrize("lost", [0, 6])
def test_settings_with_a_line_lost_are_unknown_and_named(tmp_path, lost, capsys):
    recipe = imported(tmp_path, SETTINGS, lost=(lost,))
    assert set(recipe) == {"imported"}
    main(["import", f"{tmp_path}/v.log", "--out", f"{tmp_path}/again"])
    assert ("the settings in line 2 are not whole" in capsys.readouterr().err) == (lost > 0)
