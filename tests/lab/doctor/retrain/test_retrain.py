"""`rlzoo doctor RUN --retrain`: which difference is accused, where the outcome is a function of the
recipe. An executor writes the runs without training."""

import json
from types import SimpleNamespace

import numpy as np
import pytest
from safetensors.numpy import save_file

import rlzoo
from rlzoo import RlzooError
from rlzoo.format.console import SafeConsole
from rlzoo.plugin.registry import load_zoo
from rlzoo.recipe.compose import compose
from rlzoo.runs.evaluations import PLACE
from rlzoo_lab.doctor.retrain import experiments
from rlzoo_lab.doctor.retrain.command import table
from rlzoo_lab.view.terminal import rendered

N = 400  # held-out prompts
GOOD, BAD = 0.8, 0.3


def write_run(path, recipe, accuracy, seed):
    """A finished run whose held-out accuracy rises from 0.3; the same prompts are hard in all."""
    path.mkdir(parents=True, exist_ok=True)
    (path / "recipe.yaml").write_text(recipe.to_yaml())
    (path / PLACE).mkdir(exist_ok=True)
    hard = np.random.default_rng(seed).random(N)
    lines = []
    for step, level in ((0, BAD), (20, accuracy), (30, accuracy)):
        right = hard < level
        arrays = {"prompt": np.arange(N), "right": right, "score": right.astype(np.float32)}
        save_file(arrays, path / PLACE / f"step-{step:08d}.safetensors")
        mean = float(right.mean())
        lines.append({"step": step, "eval/accuracy": mean, "eval/accuracy_low": mean - 0.05,
                      "eval/accuracy_high": mean + 0.05})  # fmt: skip
    reward = [{"step": i, "reward/mean": BAD + 0.001 * (-1) ** i} for i in range(1, 31)]
    (path / "metrics.jsonl").write_text("".join(json.dumps(x) + "\n" for x in [*lines, *reward]))
    summary = {"task": "addition", "eval_metric": "accuracy", "eval_before": BAD,
               "eval_after": accuracy, "steps": 30, "seconds": 5.0}  # fmt: skip
    (path / "summary.json").write_text(json.dumps(summary))
    return summary


class Made:
    """An executor: `outcome(config)` is the accuracy. stop: the run at which Ctrl-C comes. weights:
    a checkpoint's, by its step."""

    component = SimpleNamespace(label="executor 'made'")

    def __init__(self, outcome, stop=None, weights=lambda step: 0.0):
        self.outcome, self.stop, self.done, self.weights = outcome, stop, [], weights

    def __call__(self, _):
        return self

    def capacity(self, jobs):
        return 1

    def run(self, jobs, work, board, folder, at_a_time):
        for job in jobs:
            if len(self.done) == self.stop:
                raise KeyboardInterrupt
            config = job.recipe.config
            board.done(job, write_run(job.path, job.recipe, self.outcome(config), config.seed))
            for step in range(1, config.train.steps + 1) if config.checkpoint.every == 1 else ():
                place = job.path / "checkpoints" / f"step-{step:08d}"
                place.mkdir(parents=True)
                for file, number in (("actor", self.weights(step)), ("actor_optimizer", step)):
                    array = {"w": np.array([number], np.float32)}
                    save_file(array, place / f"{file}.safetensors")
            self.done.append(job.name)


@pytest.fixture
def retrained(tmp_path, monkeypatch):
    def ask(outcome, *words, stop=None, weights=lambda step: 0.0, **options):
        recipe = compose(["grpo", "model=nano", "task=addition", "train.steps=30", "kl.coef=0.1",
                          *words], load_zoo())  # fmt: skip
        run = tmp_path / "run"
        if not run.exists():
            write_run(run, recipe, outcome(recipe.config), recipe.config.seed)
        before = {f: f.read_bytes() for f in run.rglob("*") if f.is_file()}
        made = Made(outcome, stop, weights)
        monkeypatch.setattr(experiments, "read_executor", lambda *_: made)
        found = rlzoo.doctor(run, dir=tmp_path / "again", **{"retrain": True, **options})
        assert before == {f: f.read_bytes() for f in run.rglob("*") if f.is_file()}
        return found, made.done

    return ask


def accused(found):
    return [f for f in found["findings"] if f["rule"] == "retraining_helps"]


def test_the_setting_that_does_harm_is_the_first_finding_with_its_reset(retrained):
    found, done = retrained(lambda c: BAD if c.actor.lr > 0.01 else GOOD, "actor.lr=0.02")
    first = found["findings"][0]
    assert (first["rule"], first["severity"]) == ("retraining_helps", "problem")
    assert first["what"].startswith("actor.lr=0.02: when trained again with 0.0002")
    assert "kl.coef" not in first["what"]
    assert first["advice"] == "Set actor.lr=0.0002."
    assert len(done) == 3  # everything, and each of the two: clear without another seed
    trials = {t["reset"]: t for t in json.loads(json.dumps(found))["experiments"]}
    assert trials["actor.lr"]["helps"]
    assert trials["actor.lr"]["difference"] == pytest.approx(GOOD - BAD, abs=0.08)
    assert not trials["kl.coef"]["helps"]
    assert set(trials) == {"everything", "actor.lr", "kl.coef"}


@pytest.mark.parametrize("gain", [0.0, 0.06])
def test_unusual_settings_without_a_sizeable_effect_are_not_accused(retrained, gain):
    found, _ = retrained(lambda c: GOOD + gain * (c.actor.lr < 0.01), "actor.lr=0.02")
    assert not accused(found)
    assert all(f["severity"] == "note" for f in found["findings"])
    assert found["findings"][-1]["rule"] == "no_reset_helps"


def test_a_setting_that_the_data_need_is_not_cleared(retrained):
    found, _ = retrained(
        lambda c: BAD if c.task.digits == 1 else 0.0, "task.digits=1", "actor.lr=0.02"
    )
    (last,) = [f for f in found["findings"] if f["rule"] == "no_reset_helps"]
    assert "task.digits" in last["advice"]
    assert set(last["evidence"]["tested"]) == {"actor.lr", "kl.coef"}


def test_an_effect_that_another_seed_does_not_show_accuses_nothing(retrained):
    lucky = lambda c: 0.5 + 0.2 * (c.actor.lr < 0.01 and c.seed == 0)  # noqa: E731
    found, done = retrained(lucky, "actor.lr=0.02")
    assert not accused(found)
    assert {"as_it_was--seed1", "actor.lr--seed1"} <= {*done}


def test_an_effect_on_a_run_that_learns_is_accused_if_it_repeats_and_costs_half(retrained):
    slow = lambda c: 0.5 + 0.3 * (c.actor.lr < 0.01)  # noqa: E731
    first = retrained(slow, "actor.lr=0.02")[0]["findings"][0]
    assert (first["rule"], first["severity"]) == ("retraining_helps", "warning")


def test_a_setting_that_costs_less_than_half_of_the_gain_is_a_note(retrained):
    slow = lambda c: 0.65 + 0.15 * (c.actor.lr < 0.01)  # noqa: E731
    (found,) = accused(retrained(slow, "actor.lr=0.02")[0])
    assert found["severity"] == "note"


def test_settings_that_harm_each_by_itself_are_named_together(retrained):
    def outcome(c):
        return BAD if c.actor.lr > 0.01 or c.kl.coef > 1 else GOOD

    found, done = retrained(outcome, "actor.lr=0.02", "kl.coef=5", "rollout.top_p=0.9")
    assert "everything_but_actor.lr--seed0" in done
    (finding,) = accused(found)
    for word in ("actor.lr=0.0002", "kl.coef=0.01"):
        assert word in finding["advice"]
    assert "top_p" not in finding["advice"]


def test_a_difference_that_the_budget_did_not_reach_is_found_by_keeping_it(retrained):
    # actor.lr is the first suspect, and the only one that is reset by itself.
    found, done = retrained(lambda c: BAD if c.kl.coef > 0.05 else GOOD, "actor.lr=0.02", runs=4)
    assert "everything_but_kl.coef--seed0" in done
    (finding,) = accused(found)
    assert "kl.coef=0.01" in finding["advice"]
    assert "actor.lr" not in finding["advice"]
    trials = {t["reset"]: t for t in found["experiments"]}
    assert finding["evidence"]["after"] == trials["everything"]["score"]
    assert trials["everything but kl.coef"]["score"] == pytest.approx(BAD, abs=0.05)


def test_a_setting_that_a_retraining_clears_is_not_the_first_finding(retrained, tmp_path):
    words = ["grpo", "model=nano", "task=addition", "train.steps=30", "actor.lr=0.02"]
    write_run(tmp_path / "run", compose(words, load_zoo()), BAD, 0)
    with (tmp_path / "run" / "metrics.jsonl").open("a") as file:
        for i in range(31, 61):
            file.write(json.dumps({"step": i, "reward/mean": BAD, "actor/ppo_kl": 0.5}) + "\n")
    assert rlzoo.doctor(tmp_path / "run")["findings"][0]["rule"] == "update_too_large"
    found, _ = retrained(lambda _: BAD)
    assert found["findings"][0]["rule"] == "no_reset_helps"
    (cleared,) = [f for f in found["findings"] if f["rule"] == "update_too_large"]
    assert cleared["severity"] == "note"
    assert "with actor.lr reset" in cleared["what"]


def test_where_no_single_effect_repeats_everything_together_may(retrained):
    def outcome(c):
        calm = c.actor.lr < 0.01
        return BAD + 0.2 * (calm and c.seed == 0) + 0.4 * (calm and c.kl.coef < 1)

    found, _ = retrained(outcome, "actor.lr=0.02", "kl.coef=5")
    (finding,) = accused(found)
    assert "actor.lr=0.0002" in finding["advice"]
    assert "no_reset_helps" not in [f["rule"] for f in found["findings"]]


def test_ctrl_c_keeps_what_is_done_and_the_same_command_continues(retrained):
    outcome = lambda c: BAD if c.actor.lr > 0.01 else GOOD  # noqa: E731
    cut, done = retrained(outcome, "actor.lr=0.02", stop=2)
    assert cut.status == 130
    assert len(done) == 2
    assert sum(t["difference"] is not None for t in cut["experiments"]) == 2
    whole, more = retrained(outcome, "actor.lr=0.02")
    assert whole.status == 0
    assert len(more) == 1


def test_the_budget_holds(retrained):
    words = ["actor.lr=0.02", "kl.coef=5", "rollout.top_p=0.5", "actor.entropy_coef=0.3"]
    assert len(retrained(lambda c: 0.5, *words, runs=4)[1]) <= 4


def test_a_run_like_its_recipe_has_nothing_to_reset(retrained):
    found, done = retrained(lambda c: BAD, "kl.coef=0.01")
    assert (found["experiments"], done) == ([], [])
    assert "nothing to reset" in str(found)


def test_what_cannot_be_retrained_is_refused(tmp_path):
    recipe = compose(["grpo", "model=nano", "task=addition", "actor.lr=0.02"], load_zoo())
    write_run(tmp_path / "run", recipe, 0.5, 0)
    for options in ({"retrain": True, "runs": 0}, {"runs": 3}, {"retrain": True, "path": None}):
        where = options.pop("path", tmp_path / "run")
        with pytest.raises(RlzooError):
            rlzoo.doctor(where, **options)
    for file in (tmp_path / "run" / PLACE).iterdir():
        file.unlink()
    with pytest.raises(RlzooError, match="evaluation"):
        rlzoo.doctor(tmp_path / "run", retrain=True)


@pytest.mark.parametrize("width", [60, 80, 140])
def test_the_table_shows_every_column_at_any_width(retrained, width):
    found, _ = retrained(lambda c: BAD if c.actor.lr > 0.01 else GOOD, "actor.lr=0.02")
    console = SafeConsole(width=width, record=True, quiet=False, force_terminal=False)
    for part in rendered(table(found), console):
        console.print(part)
    text = console.export_text()
    assert max(map(len, text.splitlines())) <= width
    for word in ("actor.lr", "0.02", "0.0002", "held out", "+0.4"):
        assert word in text


CONTROL = {"retrain": False, "control": True}


@pytest.mark.parametrize("lr", [1e-3, 0.02])
def test_a_control_that_stays_where_it_is_finds_nothing(retrained, lr):
    """Whatever the run itself does: only the control's learning rate is 0."""
    found, done = retrained(lambda c: GOOD if c.actor.lr else BAD, f"actor.lr={lr}", **CONTROL)
    assert found["control"]["still"]
    assert found["control"]["difference"] == 0
    assert len(done) == 1
    assert "moves_at_learning_rate_zero" not in {f["rule"] for f in found["findings"]}


@pytest.mark.parametrize(
    ("level", "weights", "moved"),
    [(BAD, lambda step: step / 100, ["actor"]), (0.4, lambda step: 0.0, []),
     (BAD - 0.1, lambda step: 0.0 if step < 4 else 1.0, ["actor"])],
)  # fmt: skip
def test_a_control_that_moves_is_the_first_finding(retrained, level, weights, moved):
    found, _ = retrained(lambda c: GOOD if c.actor.lr else level, weights=weights, **CONTROL)
    first = found["findings"][0]
    assert (first["rule"], first["severity"]) == ("moves_at_learning_rate_zero", "problem")
    assert found["control"]["weights"] == moved
    assert ("held-out result changes" in first["what"]) == (level != BAD)
    assert not found["control"]["still"]


def test_a_control_beside_a_retraining_is_refused(retrained):
    with pytest.raises(RlzooError, match="--retrain and --control"):
        retrained(lambda c: GOOD, retrain=True, control=True)
