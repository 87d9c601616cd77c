"""The loop: what must not change a gradient does not, and what must survive does."""

import json
import os
import signal
import subprocess
import sys
import textwrap
import time

import pytest
import torch
from safetensors.torch import load_file

import rlzoo
from rlzoo.errors import RewardError, RunError
from rlzoo.lm.build import build_world
from rlzoo.recipe.compose import compose
from rlzoo.recipe.plan import make_plan
from rlzoo.rollout.advantages import KLController, add_advantages, add_rewards
from rlzoo.rollout.columns import add_columns
from rlzoo.rollout.sample import collect, draw
from rlzoo.train.loop import progress
from rlzoo.train.optimizer import learning_rate, make_optimizer
from rlzoo.train.start import resume
from rlzoo.train.update import update


def world_of(zoo, words, recipe="ppo_gae"):
    return build_world(make_plan(compose([f"recipe={recipe}", *words], zoo), zoo))


def whole_batch(world, step=0):
    prompts = draw(world, "train", world.plan.recipe.config.rollout.prompts, "train", step)
    samples = world.plan.recipe.config.rollout.samples
    batch = collect(world, prompts, samples, stream="train", step=step)
    add_columns(world, batch, stream="train", step=step)
    add_rewards(world.plan, batch, world.plan.recipe.config.kl.coef)
    add_advantages(world.plan, batch)
    return batch


def optimizers_of(world):
    config = world.plan.recipe.config
    out = {"actor": make_optimizer(world.policy.model.parameters(), config.actor)}
    if world.critic is not None:
        out["critic"] = make_optimizer(world.critic.parameters(), config.critic)
    return out


def weights_after(zoo, words, recipe):
    world = world_of(zoo, words, recipe)
    batch = whole_batch(world)
    metrics = update(world, batch, optimizers_of(world), 0, 0.1)
    state = dict(world.policy.model.state_dict())
    if world.critic is not None:
        state |= {f"critic.{k}": v for k, v in world.critic.state_dict().items()}
    return {k: v.clone() for k, v in state.items()}, metrics


# A reward that a random model meets often: the share of letters in its response.
LETTERS = ["rewards=python", "rewards.python.function=helpers.rewards_for_tests:letters"]

EVERY = (
    ("ppo_gae", []),
    ("ppo_gae", ["critic.trunk=shared"]),
    ("grpo", ["actor.entropy_coef=0.01"]),
    ("rloo", ["rollout.truncation=drop"]),
    ("ppo_gae", ["policy_loss=clip_cov"]),
    ("grpo", ["policy_loss=tpo"]),
    ("grpo", ["rollout.top_p=0.9", "correction=tis"]),
    ("ppo_gae", ["value_loss=hl_gauss"]),
)


@pytest.mark.parametrize(("recipe", "extra"), EVERY)
def test_micro_batches_change_no_parameter(zoo, words, recipe, extra):
    words = [*words, *extra, *LETTERS]
    whole, metrics = weights_after(zoo, words, recipe)
    for size in (1, 3):
        cut, cut_metrics = weights_after(zoo, [*words, f"train.microbatch={size}"], recipe)
        for name, tensor in whole.items():
            torch.testing.assert_close(cut[name], tensor, atol=1e-6, rtol=0, msg=name)
        assert cut_metrics == pytest.approx(metrics, abs=1e-4)


@pytest.mark.parametrize("trunk", ["own", "shared"])
@pytest.mark.parametrize("autocast", ["none", "bfloat16"])
def test_a_forward_pass_that_is_kept_changes_nothing(zoo, words, trunk, autocast, monkeypatch):
    """One update per rollout: the critic's pass for the columns serves the update, too."""
    from rlzoo.lm.critic import Critic
    from rlzoo.lm.policy import Policy
    from rlzoo.recipe.plan import Plan

    words = [*words, *LETTERS, f"critic.trunk={trunk}", f"model.autocast={autocast}",
             "train.minibatches=1", "kl.place=none"]  # fmt: skip
    calls = []
    # Found out by passes of their own. In a tree, rows lie in another order after shuffling, and
    # bfloat16 rounds their sums otherwise.
    monkeypatch.setattr(Policy, "plain_head", True)
    monkeypatch.setattr(Policy, "takes_trees", autocast == "none")
    for place in (Critic, Policy):
        name = "predict" if place is Critic else "_run"
        plain = getattr(place, name)
        monkeypatch.setattr(place, name, lambda *a, p=plain, n=name: calls.append(n) or p(*a))
    kept, _ = weights_after(zoo, words, "ppo_gae")
    assert calls == (["_run"] if trunk == "shared" else ["_run", "predict"])
    monkeypatch.setattr(Plan, "one_update", False)
    again, _ = weights_after(zoo, words, "ppo_gae")
    for name, tensor in kept.items():
        torch.testing.assert_close(tensor, again[name], atol=1e-6, rtol=0, msg=name)


def test_mini_batches_keep_groups_whole_for_a_loss_that_looks_at_them(zoo, words):
    from rlzoo.mdp.noise import generator
    from rlzoo.train.update import _minibatches

    for loss, whole in (("tpo", True), ("ppo_clip", False)):
        world = world_of(zoo, [*words, f"policy_loss={loss}"], "grpo")
        batch = whole_batch(world)
        parts = _minibatches(world, batch, generator(0, "x"))
        assert sorted(torch.cat(parts).tolist()) == list(range(batch.rows))
        homes = [set(batch["group_ids"][rows].tolist()) for rows in parts]
        assert (sum(map(len, homes)) == 4) == whole


def test_an_update_moves_actor_and_critic(zoo, words):
    words = [*words, *LETTERS]
    before = world_of(zoo, words).policy.model.state_dict()
    after, metrics = weights_after(zoo, words, "ppo_gae")
    assert any(not torch.equal(before[k], after[k]) for k in before)
    assert after["critic.head.weight"].abs().sum() > 0
    assert metrics["actor/grad_norm"] > 0


def test_a_tiny_learning_rate_still_changes_weights_under_autocast(zoo, words):
    words = [*words, *LETTERS, "model.autocast=bfloat16", "train.minibatches=1"]
    before = world_of(zoo, words).policy.model.state_dict()
    after, _ = weights_after(zoo, [*words, "actor.lr=1e-6"], "ppo_gae")
    assert any(not torch.equal(before[k], after[k]) for k in before)


@pytest.mark.parametrize("autocast", ["none", "bfloat16"])
def test_the_first_ratio_is_one(zoo, words, autocast):
    words = [*words, "train.minibatches=1", f"model.autocast={autocast}"]
    _, metrics = weights_after(zoo, words, "ppo_gae")
    assert metrics["actor/ratio_mean"] == pytest.approx(1, abs=1e-5)
    assert metrics["actor/ppo_kl"] == pytest.approx(0, abs=1e-5)
    assert metrics["actor/pg_clipfrac"] == 0


def test_targets_carry_no_gradient(zoo, words):
    batch = whole_batch(world_of(zoo, words))
    for name, column in batch.items():
        if isinstance(column, torch.Tensor):
            assert not column.requires_grad, name


def test_every_column_is_zero_off_the_mask(zoo, words):
    batch = whole_batch(world_of(zoo, [*words, "task=key_door", "rollout.max_new_tokens=8"]))
    off = batch["response_mask"] == 0
    assert off.any()
    for name in ("old_log_probs", "values", "rewards", "advantages", "returns", "noise", "scores"):
        assert (batch[name][off] == 0).all(), name


def test_dropped_rows_change_nothing(zoo, words):
    """A mini-batch with truncated rows dropped has the gradient of the rest alone."""
    words = [*words, "rollout.truncation=drop", "rollout.max_new_tokens=2", "train.minibatches=1"]
    world = world_of(zoo, words, "rloo")
    batch = whole_batch(world)
    assert batch["truncated"].any()
    from rlzoo.rollout.advantages import loss_mask

    assert (loss_mask(world.plan, batch)[batch["truncated"]] == 0).all()


def test_truncation_switch_sets_the_bootstrap(zoo, words):
    words = [*words, "rollout.max_new_tokens=2", "critic.lr=0.1"]
    for mode in ("zero", "bootstrap"):
        world = world_of(zoo, [*words, f"rollout.truncation={mode}"])
        torch.nn.init.ones_(world.critic.head.bias)
        batch = whole_batch(world)
        expected = batch["truncated"].float() if mode == "bootstrap" else torch.zeros(batch.rows)
        torch.testing.assert_close(batch["bootstrap_values"], expected)


def test_truncation_penalty_comes_off_the_score(zoo, words):
    words = [*words, "rollout.max_new_tokens=2", "rollout.truncation=penalty",
             "rollout.truncation_penalty=0.25"]  # fmt: skip
    batch = whole_batch(world_of(zoo, words))
    cut = batch["truncated"]
    assert cut.any()
    torch.testing.assert_close(batch["sequence_scores"][cut], torch.full((int(cut.sum()),), -0.25))


@pytest.mark.parametrize("spread", ["token", "last"])
def test_kl_in_the_reward(zoo, words, spread):
    world = world_of(zoo, [*words, f"kl.spread={spread}", "kl.coef=0.5"])
    with torch.no_grad():
        for p in world.policy.model.parameters():
            p.add_(0.05 * torch.randn_like(p))
    batch = whole_batch(world)
    gap = (batch["old_log_probs"] - batch["ref_log_probs"]) * batch["response_mask"]
    assert gap.abs().sum() > 0
    torch.testing.assert_close(
        batch["sequence_rewards"], batch["sequence_scores"] - 0.5 * gap.sum(1)
    )
    touched = (batch["rewards"] != batch["scores"]).sum(1)
    assert (touched == 1).all() if spread == "last" else (touched > 1).any()


def test_whitening_leaves_returns_and_pads_alone(zoo, words):
    words = [*words, *LETTERS]
    plain = whole_batch(world_of(zoo, [*words, "whiten=none"]))
    white = whole_batch(world_of(zoo, [*words, "whiten=batch"]))
    assert torch.equal(plain["returns"], white["returns"])
    mask = white["response_mask"].bool()
    assert (white["advantages"][~mask] == 0).all()
    assert white["advantages"][mask].mean().abs() < 1e-5
    assert white["advantages"][mask].std(correction=0) == pytest.approx(1, abs=1e-4)


def test_adaptive_controller_follows_its_formula():
    c = KLController(0.1, adaptive=True, target=2.0, horizon=100)
    c.update(4.0, 10)
    assert c.coef == pytest.approx(0.1 * (1 + 0.2 * 10 / 100))
    c.update(1.9, 10)
    assert c.coef == pytest.approx(0.102 * (1 + (1.9 / 2 - 1) * 10 / 100))


def test_learning_rate_schedules(zoo):
    config = compose(["recipe=grpo", "actor.lr=1.0", "actor.lr_warmup=4",
                      "actor.lr_schedule=linear"], zoo).config.actor  # fmt: skip
    assert [learning_rate(config, s, 0.0) for s in range(5)] == [0.25, 0.5, 0.75, 1.0, 1.0]
    assert learning_rate(config, 9, 0.75) == pytest.approx(0.25)


def test_the_first_budget_reached_ends_the_run(zoo, words, tmp_path):
    run = rlzoo.run("grpo", [*words, "train.tokens=30", f"run.dir={tmp_path / 'a'}"], zoo=zoo)
    assert run.summary["tokens"] >= 30
    assert run.summary["steps"] < 3
    config = compose(["recipe=grpo", "train.minutes=1"], zoo).config.train
    assert progress(config, 0, 0, 30.0) == 0.5


# ---------------------------------------------------------------- the run folder


def lines(path, name="metrics.jsonl"):
    """Metrics without what the clock wrote."""

    def timed(key):
        return key.startswith("timing_s/") or key in ("perf/seconds", "perf/tokens_per_second")

    read = [json.loads(x) for x in (path / name).read_text().splitlines()]
    return [{k: v for k, v in r.items() if not timed(k)} for r in read]


def test_a_run_leaves_what_it_promises(zoo, words, tmp_path):
    run = rlzoo.run("ppo_gae", [*words, f"run.dir={tmp_path / 'a'}", "run.save_batches=2",
                                "loggers=csv"], zoo=zoo)  # fmt: skip
    assert {p.name for p in run.path.iterdir()} == {
        "recipe.yaml", "metrics.jsonl", "samples.jsonl", "summary.json", "checkpoints", "model",
        "batches", "metrics.csv",
    }  # fmt: skip
    assert {"eval_before", "eval_after", "seconds", "tokens", "peak_rss_mb"} <= set(run.summary)
    steps = [r for r in run.metrics if "reward/mean" in r]
    assert [r["step"] for r in steps] == [1, 2, 3]
    assert [r["step"] for r in run.metrics if "eval/accuracy" in r] == [0, 3]
    tokens = sum(r["response_length/mean"] * 16 for r in steps)
    assert steps[-1]["perf/tokens"] == run.summary["tokens"] == pytest.approx(tokens)
    assert len(list((run.path / "batches").glob("*.safetensors"))) == 2
    assert "advantages" in load_file(run.path / "batches" / "step-00000003.safetensors")
    from transformers import AutoModelForCausalLM, AutoTokenizer

    AutoModelForCausalLM.from_pretrained(run.path / "model")
    assert AutoTokenizer.from_pretrained(run.path / "model")("1+1=")["input_ids"]


def test_the_same_seed_twice_gives_the_same_metrics(zoo, words, tmp_path):
    for name in ("a", "b"):
        rlzoo.run("ppo_gae", [*words, f"run.dir={tmp_path / name}"], zoo=zoo)
    assert lines(tmp_path / "a") == lines(tmp_path / "b")
    assert lines(tmp_path / "a", "samples.jsonl") == lines(tmp_path / "b", "samples.jsonl")
    rlzoo.run("ppo_gae", [*words, "seed=1", f"run.dir={tmp_path / 'c'}"], zoo=zoo)
    assert lines(tmp_path / "a") != lines(tmp_path / "c")


def test_an_existing_run_folder_is_refused_unless_told(zoo, words, tmp_path):
    words = [*words, f"run.dir={tmp_path / 'a'}", "train.steps=1"]
    rlzoo.run("grpo", words, zoo=zoo)
    with pytest.raises(RunError, match="exists already; `rlzoo resume"):
        rlzoo.run("grpo", words, zoo=zoo)
    rlzoo.run("grpo", [*words, "run.overwrite=true"], zoo=zoo)
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "precious").touch()
    with pytest.raises(RunError, match="no run folder"):
        rlzoo.run("grpo", [*words, f"run.dir={tmp_path / 'b'}", "run.overwrite=true"], zoo=zoo)
    assert (tmp_path / "b" / "precious").exists()


def test_killed_at_random_moments_and_resumed_the_metrics_are_the_same(words, tmp_path):
    """SIGKILL, ten times; then on to the end: as a run that was never interrupted."""
    words = [*words, "train.steps=60", "eval.every=7", "checkpoint.every=2", "loggers=csv",
             "kl.controller=adaptive", "actor.lr_schedule=cosine"]  # fmt: skip
    script = textwrap.dedent("""
        import sys, torch
        import rlzoo
        from rlzoo.runs import resume
        torch.set_num_threads(1)
        mode, path, *words = sys.argv[1:]
        print("ready", flush=True)
        if mode == "run":
            rlzoo.run("ppo_gae", [*words, f"run.dir={path}"])
        else:
            resume(path)
    """)

    def start(mode, path):
        command = [sys.executable, "-c", script, mode, str(path), *words]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    whole = start("run", tmp_path / "whole")
    assert whole.wait(timeout=120) == 0, whole.stderr.read()
    generator = torch.Generator().manual_seed(0)
    killed = 0
    mode = "run"
    while killed < 10:
        process = start(mode, tmp_path / "cut")
        process.stdout.readline()
        time.sleep(0.1 + 1.2 * float(torch.rand((), generator=generator)))
        if process.poll() is None:
            os.kill(process.pid, signal.SIGKILL)
        process.wait()
        killed += 1
        if (tmp_path / "cut" / "summary.json").exists():
            break
        if (tmp_path / "cut" / "recipe.yaml").exists():
            mode = "resume"
    if not (tmp_path / "cut" / "summary.json").exists():
        last = start(mode, tmp_path / "cut")
        assert last.wait(timeout=120) == 0, last.stderr.read()
    assert killed >= 3
    assert lines(tmp_path / "cut") == lines(tmp_path / "whole")
    assert lines(tmp_path / "cut", "samples.jsonl") == lines(tmp_path / "whole", "samples.jsonl")
    a, b = (load_file(tmp_path / n / "model" / "model.safetensors") for n in ("cut", "whole"))
    assert all(torch.equal(a[k], b[k]) for k in b)


class Stopper:
    """A display that stops a run after some steps, as Ctrl-C would."""

    def __init__(self, after):
        self.after = after
        self.notes = []

    def step(self, line, progress):
        if line["step"] == self.after:
            raise KeyboardInterrupt

    def note(self, text):
        self.notes.append(text)

    def __getattr__(self, name):
        return lambda *_: None


def test_a_damaged_checkpoint_falls_back_to_the_one_before(zoo, words, tmp_path):
    words = [*words, "train.steps=5"]
    rlzoo.run("ppo_gae", [*words, f"run.dir={tmp_path / 'whole'}"], zoo=zoo)
    with pytest.raises(KeyboardInterrupt):
        rlzoo.run("ppo_gae", [*words, f"run.dir={tmp_path / 'cut'}"], zoo=zoo, display=Stopper(4))
    newest = tmp_path / "cut" / "checkpoints" / "step-00000003"
    data = bytearray((newest / "critic.safetensors").read_bytes())
    data[-1] ^= 1
    (newest / "critic.safetensors").write_bytes(bytes(data))
    display = Stopper(99)
    resume(tmp_path / "cut", zoo=zoo, display=display)
    assert "step-00000003 is damaged" in display.notes[0]
    assert "resumed at step 2" in display.notes[1]
    assert lines(tmp_path / "cut") == lines(tmp_path / "whole")


def test_resuming_a_finished_run_or_none_is_refused(zoo, words, tmp_path):
    run = rlzoo.run("grpo", [*words, "train.steps=1", f"run.dir={tmp_path / 'a'}"], zoo=zoo)
    with pytest.raises(RunError, match="finished already"):
        resume(run.path, zoo=zoo)
    with pytest.raises(RunError, match=r"is no run folder.*runs there: .*/a"):
        resume(tmp_path / "b", zoo=zoo)


# ---------------------------------------------------------------- faults


REWARD = """
def raises(prompts, responses, answers):
    if len(responses[0]) >= 0 and any(p.startswith("{first}") for p in prompts):
        raise ValueError("I do not like it")
    return [0.0] * len(prompts)

def nan(prompts, responses, answers):
    return [float("nan") if i == 2 else 0.0 for i in range(len(prompts))]

def short(prompts, responses, answers):
    return [0.0]

def fine(prompts, responses, answers):
    return [float(len(r)) for r in responses]
"""


@pytest.mark.parametrize(
    ("function", "words_said"),
    [("raises", "ValueError: I do not like it"), ("nan", "NaN"), ("short", "shape (1,)")],
)
def test_a_reward_that_fails_shows_prompt_and_response(
    zoo, words, tmp_path, monkeypatch, function, words_said
):
    (tmp_path / "my_rewards.py").write_text(REWARD.replace("{first}", ""))
    monkeypatch.syspath_prepend(str(tmp_path))
    sys.modules.pop("my_rewards", None)
    words = [*words, "rewards=python", f"rewards.python.function=my_rewards:{function}"]
    with pytest.raises(rlzoo.RlzooError) as caught:
        rlzoo.run("grpo", [*words, f"run.dir={tmp_path / 'a'}"], zoo=zoo)
    assert words_said in str(caught.value)
    if function != "short":
        assert isinstance(caught.value, RewardError)
        assert "on prompt '" in str(caught.value)
        assert "response '" in str(caught.value)


def test_a_python_reward_trains(zoo, words, tmp_path, monkeypatch):
    (tmp_path / "my_rewards.py").write_text(REWARD)
    monkeypatch.syspath_prepend(str(tmp_path))
    sys.modules.pop("my_rewards", None)
    words = [*words, "rewards.python.function=my_rewards:fine", "rewards.python.weight=0.5"]
    run = rlzoo.run("grpo", [*words, f"run.dir={tmp_path / 'a'}"], zoo=zoo)
    assert run.metrics[1]["score/python"] > 0


def test_a_step_that_is_not_finite_is_skipped_and_counted(zoo, words, tmp_path):
    plugin = tmp_path / "explode.py"
    plugin.write_text(
        textwrap.dedent("""
        import torch
        from rlzoo import hookimpl

        def explode(log_probs, advantages):
            '''Its gradient is infinite where log_probs are anything.  Source: a test.'''
            return (log_probs - log_probs.detach()).clamp(min=0).sqrt() * 1.0

        @hookimpl
        def register_policy_losses(register):
            register(explode)
    """)
    )
    zoo = rlzoo.load_zoo([plugin])
    run = rlzoo.run("grpo", [*words, "policy_loss=explode", "kl.place=none",
                             f"run.dir={tmp_path / 'a'}"], zoo=zoo)  # fmt: skip
    assert run.summary["skipped_updates"] == 6
    before = load_file(run.path / "model" / "model.safetensors")
    assert all(torch.isfinite(x).all() for x in before.values())


def test_a_character_the_tokenizer_does_not_know(zoo, words, tmp_path):
    plugin = tmp_path / "greek.py"
    plugin.write_text(
        textwrap.dedent("""
        import torch
        from rlzoo import Example, hookimpl

        class Greek:
            '''Prompts that the character model cannot read.  Source: a test.'''
            def draw(self, split, n, generator):
                return [Example("αβγ", "", i) for i in range(n)]
            def score(self, responses):
                return torch.zeros(len(responses))

        @hookimpl
        def register_tasks(register):
            register(Greek)
    """)
    )
    with pytest.raises(rlzoo.RlzooError, match="does not know 'α'"):
        rlzoo.run("grpo", [*words, "task=greek", f"run.dir={tmp_path / 'a'}"],
                  zoo=rlzoo.load_zoo([plugin]))  # fmt: skip


@pytest.mark.parametrize("path", ["nowhere", "empty"])
def test_a_model_folder_that_is_none(zoo, words, tmp_path, path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(rlzoo.RlzooError, match="model.path: .* is no model"):
        rlzoo.run("grpo", [*words, f"model.path={tmp_path / path}", f"run.dir={tmp_path / 'a'}"],
                  zoo=zoo)  # fmt: skip
