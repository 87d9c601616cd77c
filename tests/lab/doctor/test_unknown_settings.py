"""A setting that an imported run does not record is unknown, in every rule: not rlzoo's default."""

import importlib.util
import json
import re
from pathlib import Path

import pytest

import rlzoo
from rlzoo_lab.data.record import Record, Unknown
from rlzoo_lab.doctor.command import examine
from rlzoo_lab.doctor.theirs import KEY

spec = importlib.util.spec_from_file_location("cases", Path(__file__).with_name("test_doctor.py"))
made = importlib.util.module_from_spec(spec)
spec.loader.exec_module(made)

# Rules that judge a setting: without it there is nothing to judge. The rest see metrics alone.
ABOUT_SETTINGS = {
    "actor_not_trained", "advantages_not_centred", "evaluation_too_small",
    "data_differ_before_training", "ended_early",
    "entropy_bonus_too_strong", "evaluation_samples_differently", "first_updates_break_the_policy",
    "held_out_prompts_are_trained_on", "kl_too_strong", "prompts_are_cut",
    "ratio_not_one_at_first", "samples_are_copies", "temperature_far_from_one",
    "training_and_held_out_differ",
}  # fmt: skip
SILENT = {"optimizer_setting_is_harmful"}  # it judges the settings that are known
OF_GROUPS = {"reward_constant"}  # left to no_signal_in_groups where a trainer records that


def imported(run, recipe=(), trainer="trl"):
    """The run as if another trainer had made it and recorded only `recipe`."""
    summary = {**run.summary, "imported": {"from": trainer, "missing": []}}
    other = Record(run.steps, run.evaluations, dict(recipe), summary)
    other.__dict__ |= {k: run.__dict__[k] for k in ("samples", "by_prompt") if k in run.__dict__}
    return other


@pytest.mark.parametrize("name", made.CASES)
def test_no_rule_states_or_needs_a_setting_that_is_not_recorded(name):
    run = imported(made.CASES[name][0])
    findings, left_out = examine(run)
    assert (name in {f.rule for f in findings}) == (name not in ABOUT_SETTINGS | OF_GROUPS | SILENT)
    assert name not in ABOUT_SETTINGS or left_out.get(name)
    for f in findings:
        assert not re.search(rf"(?:{KEY.pattern})=", f.what), f.what  # a value
        assert not re.search(r"\bNone\b|\bnan\b|\(default |\b(now|is) None", f.what + f.advice)
        assert not {None, 64} & {
            x for k, x in f.evidence.items() if "coef" not in k and not isinstance(x, list)
        }


NULL = dict.fromkeys(("sampler.name", "eval.max_new_tokens", "task.name", "task.path",
                      "estimator.name", "train.tokens", "train.minutes"))  # fmt: skip


@pytest.mark.parametrize("name", sorted(made.CASES.keys() - OF_GROUPS))
def test_a_run_that_records_its_settings_is_judged_by_them(name):
    bad, good = ({f.rule for f in examine(imported(run, NULL | run.recipe, "rlzoo"))[0]}
                 for run in made.CASES[name])  # fmt: skip
    assert name in bad
    assert name not in good


def test_a_setting_is_unknown_only_where_it_is_not_recorded():
    run = imported(made.record(), {"actor.lr": None})
    assert run.key("actor.lr", 3) == 3  # recorded as null
    with pytest.raises(Unknown, match=r"kl\.coef"):
        run.key("kl.coef", 0.01)
    assert run.known("kl.coef") is None
    assert made.record().key("no.such", 3) == 3


GRPO = {"reward": 0.5, "reward_std": 0.4, "frac_reward_zero_std": 0.3, "grad_norm": 1.03127,
        "completions/clipped_ratio": 0.1, "kl": lambda i: 1e-4 * i,
        "learning_rate": 1e-6}  # fmt: skip
PPO = {"objective/scores": 0.1, "policy/approxkl_avg": 0.02, "val/ratio": 1.004, "lr": 5e-6}
ONE = {"rewards/acc/std": 0.4}  # one reward function, so that its deviation is that of all scores
RIGHT_STD = {"reward_std": 0.0, "frac_reward_zero_std": 1.0, "rewards/acc/std": 0.53}


def log_of(tmp_path, line, changes=(), stride=1, n=40):
    """`rlzoo doctor` on a trainer_state.json, the usual file without settings."""
    history = [
        {"step": (i + 1) * stride,
         **{k: v(i) if callable(v) else v for k, v in {**line, **dict(changes)}.items()}}
        for i in range(n)
    ]  # fmt: skip
    (tmp_path / "trainer_state.json").write_text(json.dumps({"log_history": history}))
    rlzoo.verb("import", tmp_path / "trainer_state.json", out=tmp_path / "run")
    return rlzoo.doctor(tmp_path / "run")


@pytest.mark.parametrize(
    ("line", "changes", "rule", "key"),
    [
        (GRPO, {"reward": 0.3}, "temperature_far_from_one", "rollout.temperature"),
        (PPO, {}, "kl_too_strong", "kl.coef"),
        # Of three decimals, 0 may be any small number.
        (GRPO, {"grad_norm": 1.031, "kl": lambda i: 0.001 * i, "learning_rate": 0.0},
         "optimizer_setting_is_harmful", "actor.lr"),
    ],
)  # fmt: skip
def test_a_log_without_settings_is_not_accused_by_a_default(tmp_path, line, changes, rule, key):
    found = log_of(tmp_path, line, changes)
    assert found["unknown"][rule] == key
    assert [f for f in found["findings"] if f["severity"] == "problem"] == []


def test_a_rate_of_zero_is_one_where_numbers_are_not_rounded(tmp_path):
    found = log_of(tmp_path, GRPO, {"learning_rate": 0.0})
    assert found["findings"][0]["rule"] == "optimizer_setting_is_harmful"
    assert "Set learning_rate." in found["findings"][0]["advice"]


VERL = {"critic/score/mean": 0.5, "critic/score/max": 1.0, "actor/lr": 1e-6, "actor/entropy": 0.3,
        "actor/ppo_kl": 1e-4, "actor/grad_norm": 0.5}  # fmt: skip


def test_groups_without_signal_are_not_called_a_constant_reward(tmp_path):
    rules = {f["rule"] for f in log_of(tmp_path, GRPO, RIGHT_STD)["findings"]}
    assert "no_signal_in_groups" in rules
    assert "reward_constant" not in rules


def test_remedies_use_the_names_of_the_trainer_and_lines_say_what_they_are(tmp_path):
    found = log_of(tmp_path, GRPO, RIGHT_STD)
    (finding,) = [f for f in found["findings"] if f["rule"] == "no_signal_in_groups"]
    assert "Raise num_generations" in finding["advice"]
    (tmp_path / "b").mkdir()
    found = log_of(tmp_path / "b", GRPO, stride=5)
    assert any("a line every 5 steps" in text for text in found["folder"])
    run = imported(made.record({"actor/ref_kl": lambda x: 3 * x}), {"kl.coef": 0.02})
    (finding,) = [f for f in examine(run)[0] if f.rule == "kl_exploding"]
    assert "beta or kl_coef (it is 0.02)" in finding.advice


@pytest.mark.parametrize(
    ("recipe", "says"),
    [
        ({"kl.place": "loss", "kl.coef": 0.02}, "kl.coef (it is 0.02)"),
        ({"kl.place": "none", "policy_loss.beta": 0.1}, "policy_loss.beta (it is 0.1"),
        ({"kl.place": "none"}, "kl.place=loss"),
    ],
)
def test_a_remedy_for_a_kl_has_an_effect_in_this_run(recipe, says):
    run = made.record({"actor/ref_kl": lambda x: 3 * x}, recipe=recipe)
    (finding,) = [f for f in examine(run)[0] if f.rule == "kl_exploding"]
    assert says in finding.advice


def test_the_critic_of_verl_is_judged_by_its_explained_variance(tmp_path):
    line = {"critic/score/mean": 0.4137, "critic/vf_explained_var": -0.5, "critic/vf_loss": 0.2,
            "critic/returns/max": 1.0, "critic/returns/min": 0.0, "critic/lr": 1e-5,
            "critic/grad_norm": 2.0}  # fmt: skip
    text = "\n".join(json.dumps({"step": i, "data": line}) for i in range(1, 41))
    (tmp_path / "verl.jsonl").write_text(text)
    rlzoo.verb("import", tmp_path / "verl.jsonl", out=tmp_path / "run")
    first, *others = rlzoo.doctor(tmp_path / "run")["findings"]
    assert first["rule"] == "critic_worse_than_a_constant"
    # A rate that is small for rlzoo's critics is usual for a large model.
    assert "critic_does_not_learn" not in [f["rule"] for f in others]
    assert "nan" not in first["what"]
