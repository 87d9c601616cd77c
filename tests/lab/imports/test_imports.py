"""Runs of other trainers become run folders, with the trainer's figures to the last digit."""

import json

import pytest
import yaml

from helpers.made_up_sources import LRS, REWARDS, SOURCES, arguments, lines
from rlzoo.cli import parser_of
from rlzoo.errors import RlzooError, UsageError
from rlzoo.runs.provenance import FILE
from rlzoo_lab.api.runs import load_run
from rlzoo_lab.data.record import read_record
from rlzoo_lab.imports import command as verb
from rlzoo_lab.imports.folder import convert
from rlzoo_lab.imports.found import Found, Row
from rlzoo_lab.imports.pickled import read_arguments

# source -> (whose it is, its evaluation)
WHOSE = {
    "trl": ("trl", {"eval/score": 0.75}),
    "verl_jsonl": ("verl", {"eval/score": 0.625}),
    "verl_console": ("verl", {"eval/score": 0.5}),
    "prime_rl": ("prime-rl", {"eval/score": 0.5}),
    "skyrl": ("skyrl", {"eval/score": 0.25}),
    "slime": ("slime", {"eval/score": 0.125}),
    "tensorboard": ("verl", {}),
    "table": ("verl", {}),
    "wandb": ("trl", {"eval/score": 0.75}),
}


def imported(source, out, *words):
    arguments = parser_of("import").parse_args([str(source), "--out", str(out), *map(str, words)])
    return verb.run(arguments)


def metrics(run):
    with open(run / "metrics.jsonl") as file:
        return [json.loads(line) for line in file]


@pytest.fixture(params=SOURCES)
def source(request, tmp_path):
    if request.param == "tensorboard":
        pytest.importorskip("tensorboard")
    if request.param == "trl":
        pytest.importorskip("pyarrow")
    SOURCES[request.param](tmp_path / "source")
    return request.param, tmp_path / "source"


def test_a_run_has_the_trainers_figures(source, tmp_path):
    name, place = source
    whose, held_out = WHOSE[name]
    result = imported(place, tmp_path / "run")
    assert result.document["from"] == whose
    rows = [row for row in metrics(tmp_path / "run") if "reward/mean" in row]
    assert [row["step"] for row in rows] == [1, 2, 3]
    rewards = REWARDS
    if name == "skyrl":
        rewards = [round(r, 4) for r in REWARDS]
    if name == "tensorboard":  # float32
        rewards = pytest.approx(REWARDS, rel=1e-7)
    assert [row["reward/mean"] for row in rows] == rewards
    if name not in ("tensorboard", "table"):
        lrs = [0.001] * 3 if name == "skyrl" else LRS
        assert [row["actor/lr"] for row in rows] == lrs
    for key, value in held_out.items():
        assert [r[key] for r in metrics(tmp_path / "run") if key in r] == [value]
    record = read_record(tmp_path / "run")
    assert len(record.steps) == 3
    assert any(f"imported from {whose}" in line for line in record.troubles)
    assert load_run(tmp_path / "run").state == "finished"


def test_a_trainers_own_format_can_be_required(source, tmp_path):
    name, place = source
    whose = WHOSE[name][0]
    assert imported(place, tmp_path / "run", "--from", whose).document["from"] == whose
    other = "slime" if whose != "slime" else "trl"
    with pytest.raises(UsageError, match="--from"):
        imported(place, tmp_path / "other", "--from", other)
    assert not (tmp_path / "other").exists()


def test_settings_become_keys_of_a_recipe(tmp_path):
    pytest.importorskip("pyarrow")
    SOURCES["trl"](tmp_path / "source")
    result = imported(tmp_path / "source", tmp_path / "run", "--row", "beta 0.04")
    recipe = yaml.safe_load((tmp_path / "run" / "recipe.yaml").read_text())
    assert recipe["kl"] == {"coef": 0.04, "name": "k3", "place": "loss"}
    assert recipe["rollout"] == {"samples": 2, "prompts": 2}
    assert (recipe["seed"], recipe["actor"]["lr"]) == (3, 1e-6)
    assert recipe["estimator"]["name"] == "grpo"
    assert "recipe key seed" not in result.document["missing"]
    assert "recipe key task.name" in result.document["missing"]
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["stopped"] == "step 3 of 4"
    [part] = json.loads((tmp_path / "run" / FILE).read_text())
    kinds = {entry["is"] for entry in part["imported"]["files"]}
    assert kinds == {"state", "arguments", "rollouts of trl"}
    assert all(len(entry["sha256"]) == 64 for entry in part["imported"]["files"])


def test_responses_give_metrics_that_the_trainer_did_not_log(tmp_path):
    pytest.importorskip("pyarrow")
    SOURCES["trl"](tmp_path / "source")
    imported(tmp_path / "source", tmp_path / "run")
    first = metrics(tmp_path / "run")[0]
    assert first["response/distinct"] == 3 / 4  # 2, 3, 5, 5
    assert first["score/noise"] == 0.0  # the answer 5 came twice and was right twice
    assert first["group/no_signal"] == 1 / 2  # both answers to 2+3= are right
    assert first["prompts/distinct"] == 1.0
    assert (first["score/min"], first["score/max"]) == (0.0, 1.0)
    # Scores 1, 0, 1, 1 and advantages 0.5, -0.5, 0, 0: 0.5 / sqrt(0.75 * 0.5).
    assert first["raw_advantages/score_corr"] == pytest.approx(0.816496580927726)
    assert first["reward/mean"] == 0.1, "what the trainer logged stays"
    samples = [json.loads(s) for s in (tmp_path / "run" / "samples.jsonl").read_text().splitlines()]
    assert samples[1] == {"step": 1, "prompt": "1+1=", "response": "3", "score": 0.0,
                          "advantage": -0.5}  # fmt: skip


@pytest.mark.parametrize("name", ["verl_jsonl", "prime_rl", "slime"])
def test_only_responses_of_training_are_samples(tmp_path, name):
    SOURCES[name](tmp_path / "source")
    result = imported(tmp_path / "source", tmp_path / "run")
    samples = [json.loads(s) for s in (tmp_path / "run" / "samples.jsonl").read_text().splitlines()]
    paid = {"prime_rl": 0.125}.get(name, 0.0)
    prompt = "1+1=" if name == "verl_jsonl" else "user: 1+1="
    found = [(s["step"], s["prompt"], s["response"], s["score"]) for s in samples]
    assert found == [(n, prompt, text, score + paid)
                     for n in (1, 2, 3) for text, score in (("2", 1.0), ("3", 0.0))]  # fmt: skip
    assert [s.get("advantage") for s in samples[:2]] == (
        [0.5, -0.5] if name == "prime_rl" else [None, None])  # fmt: skip
    noted = any("evaluations are not read" in note for note in result.notes)
    assert noted == (name != "prime_rl")  # its traces lie in folders of their own


def test_other_parquet_files_of_a_run_are_not_read(tmp_path):
    """Prompts of verl, or miles' columns for its dashboard."""
    pa = pytest.importorskip("pyarrow")
    from pyarrow.parquet import write_table

    SOURCES["verl_jsonl"](tmp_path / "source")
    write_table(pa.table({"prompt": ["1+1="]}), tmp_path / "source" / "train.parquet")
    assert imported(tmp_path / "source", tmp_path / "run").document["from"] == "verl"


def test_a_rate_that_skyrl_prints_as_0_is_unknown(tmp_path):
    printed = "Step 1: \n{'policy/policy_lr': '0.0000', 'policy/policy_loss': '0.0000'}\n"
    (tmp_path / "train.log").write_text(printed)
    imported(tmp_path / "train.log", tmp_path / "run")
    assert metrics(tmp_path / "run") == [{"step": 1, "actor/pg_loss": 0.0}]


def test_ppo_of_trl_has_its_own_names(tmp_path):
    """As TRL 1.12 logs a step, and what its arguments then hold."""
    line = {"episode": 16, "eps": 14, "objective/kl": 0.3302241265773773,
            "objective/scores": 0.8125, "objective/rlhf_reward": 0.8058955073356628,
            "policy/approxkl_avg": 1.04e-08,
            "val/ratio": 1.0000370740890503, "lr": 1.25e-05, "val/num_eos_tokens": 16}  # fmt: skip
    place = tmp_path / "in" / "trainer_state.json"
    arguments(place.with_name("training_args.bin"), num_ppo_epochs=4, num_mini_batches=2, lam=0.95,
              kl_coef=0.05, kl_estimator="k1", cliprange=0.2, batch_size=16)  # fmt: skip
    place.write_text(json.dumps({"log_history": [{"step": 1, **line}]}))
    result = imported(place.parent, tmp_path / "run")
    [row] = metrics(tmp_path / "run")
    ours = ("actor/ref_kl_per_response", "reward/mean", "rewards/mean", "actor/ppo_kl",
            "actor/ratio_mean", "actor/lr", "trl/val/num_eos_tokens")  # fmt: skip
    assert [row[name] for name in ours] == list(line.values())[2:]
    assert any("approxkl" in note for note in result.notes)
    recipe = yaml.safe_load((tmp_path / "run" / "recipe.yaml").read_text())
    assert recipe["estimator"] == {"name": "gae", "lam": 0.95}
    assert recipe["kl"] == {"coef": 0.05, "name": "k1", "place": "reward"}
    assert (recipe["train"], recipe["rollout"]) == (
        {"epochs": 4, "minibatches": 2}, {"prompts": 16, "samples": 1})  # fmt: skip


def test_rloo_of_trl_pays_for_its_kl_in_the_reward(tmp_path):
    place = tmp_path / "in" / "trainer_state.json"
    arguments(place.with_name("training_args.bin"), num_generations=4, beta=0.05,
              normalize_advantages=False)  # fmt: skip
    place.write_text(json.dumps({"log_history": [{"step": 1, "reward": 0.5, "kl": 0.2}]}))
    result = imported(place.parent, tmp_path / "run")
    assert "actor/ref_kl" in result.document["metrics"]
    assert "actor/kl_loss" not in result.document["metrics"]
    assert result.notes == []
    assert result.document["recipe"] == {
        "imported.from": "trl", "estimator.name": "rloo", "kl.name": "k1", "kl.place": "reward",
        "kl.coef": 0.05, "rollout.samples": 4}  # fmt: skip


def test_responses_that_trl_writes_again_count_once(tmp_path):
    pytest.importorskip("pyarrow")
    SOURCES["trl"](tmp_path / "source")
    state = tmp_path / "source" / "checkpoint-3" / "trainer_state.json"
    history = json.loads(state.read_text())["log_history"]
    del history[1]["reward"], history[1]["rewards/right/mean"]  # step 2 is a second pass
    state.write_text(json.dumps({"log_history": history}))
    imported(tmp_path / "source", tmp_path / "run")
    lines = (tmp_path / "run" / "samples.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in lines] == [1] * 4
    assert "response/distinct" not in metrics(tmp_path / "run")[1]


def test_steps_from_0_move_with_their_responses(tmp_path):
    lines(tmp_path / "in" / "a.jsonl",
          [{"step": n, "data": {"critic/score/mean": 0.5}} for n in (0, 1)])  # fmt: skip
    lines(tmp_path / "in" / "rollouts" / "0.jsonl",
          [{"input": "1+1=", "output": "2", "gts": "2", "score": 1.0, "step": 0}])  # fmt: skip
    imported(tmp_path / "in", tmp_path / "run")
    assert [row["step"] for row in metrics(tmp_path / "run")] == [1, 2]
    assert metrics(tmp_path / "run")[0]["score/max"] == 1.0
    assert json.loads((tmp_path / "run" / "samples.jsonl").read_text())["step"] == 1


def test_metrics_without_a_name_keep_theirs(tmp_path):
    SOURCES["verl_jsonl"](tmp_path / "source")
    result = imported(tmp_path / "source", tmp_path / "run")
    assert metrics(tmp_path / "run")[0]["verl/perf/mfu"] == 0.5
    assert "sampler/log_prob_gap" in result.document["missing"]


def test_a_resumed_run_counts_once_by_its_later_values(tmp_path):
    rows = [
        {"step": n, "data": {"critic/score/mean": v}}
        for n, v in ((1, 0.1), (2, 0.2), (3, 0.3), (2, 0.5))
    ]
    lines(tmp_path / "a.jsonl", rows)
    result = imported(tmp_path / "a.jsonl", tmp_path / "run")
    assert [row["reward/mean"] for row in metrics(tmp_path / "run")] == [0.1, 0.5, 0.3]
    assert any("twice" in note and "steps 3 to 3" in note for note in result.notes)


def test_several_evaluations_need_a_choice(tmp_path):
    data = {"val-core/a/reward/mean@1": 0.25, "val-core/b/reward/mean@1": 0.5}
    lines(tmp_path / "a.jsonl", [{"step": 1, "data": {"critic/score/mean": 0.5} | data}])
    result = imported(tmp_path / "a.jsonl", tmp_path / "run")
    assert any("eval/score" in name for name in result.document["missing"])
    imported(tmp_path / "a.jsonl", tmp_path / "chosen", "--eval", "val-core/b")
    assert metrics(tmp_path / "chosen")[-1]["eval/score"] == 0.5
    with pytest.raises(UsageError, match="--eval"):
        imported(tmp_path / "a.jsonl", tmp_path / "none", "--eval", "gsm8k")


def test_files_of_several_trainers_are_always_those_of_the_same_one():
    formats = {"wandb", "csv", "verl", "skyrl", "slime", "prime-rl"}
    found = Found(rows=[Row(1, {"reward": 0.5})], formats=formats)
    assert convert(found, None, {}).trainer == "prime-rl"


def test_two_runs_in_a_folder_are_not_mixed(tmp_path):
    for name in "ab":
        lines(tmp_path / "source" / f"{name}.jsonl", [{"step": 1, "critic/score/mean": 0.5}])
    with pytest.raises(UsageError, match="2 runs"):
        imported(tmp_path / "source", tmp_path / "run")


def test_a_pickle_is_read_and_not_run(tmp_path):
    class Evil:
        def __reduce__(self):
            return (open, (str(tmp_path / "touched"), "w"))

    arguments(tmp_path / "training_args.bin", seed=3, evil=Evil())
    assert read_arguments(tmp_path / "training_args.bin") == {"seed": 3}
    assert not (tmp_path / "touched").exists()


def test_an_import_overwrites_nothing(tmp_path):
    SOURCES["table"](tmp_path / "source")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "mine.txt").write_text("kept")
    with pytest.raises(RlzooError, match="--out"):
        imported(tmp_path / "source", tmp_path / "run")
    assert [p.name for p in (tmp_path / "run").iterdir()] == ["mine.txt"]
