"""Several architectures, small and random, from disk: what they have to have in common."""

import json
import math

import pytest
import torch
from safetensors.torch import load_file
from torch.nn import functional as F

import rlzoo
from helpers.architectures import (
    COMMON,
    CONFIGS,
    SPECIAL,
    TOKENIZER,
    columns_of,
    ragged,
    save_model,
)
from rlzoo.errors import ModelError, RlzooError
from rlzoo.lm.build import build_world
from rlzoo.lm.critic import Critic
from rlzoo.lm.decode import _by_generation, decode
from rlzoo.lm.layout import align, lengths, pack
from rlzoo.lm.loading import load_causal_lm
from rlzoo.lm.policy import Policy
from rlzoo.mdp.batch import left_pad, take
from rlzoo.mdp.rules import episode_columns
from rlzoo.recipe.compose import compose
from rlzoo.recipe.plan import make_plan
from rlzoo.rollout.advantages import add_advantages, add_rewards, make_controller
from rlzoo.rollout.columns import add_columns
from rlzoo.rollout.sample import collect, draw
from rlzoo.train import update as update_module
from rlzoo.train.loop import training_step
from rlzoo.train.optimizer import make_optimizer
from rlzoo.train.start import resume
from rlzoo.train.update import gradients, update

EACH = pytest.mark.parametrize("name", CONFIGS)
NEAR = {"atol": 1e-5, "rtol": 0}


@pytest.fixture(scope="session")
def folders(tmp_path_factory):
    root = tmp_path_factory.mktemp("architectures")
    return {name: save_model(root / name, name) for name in CONFIGS}


SMALL = [
    *("device=cpu", "task=addition_mixed", "rollout.prompts=4", "rollout.samples=4"),
    *("rollout.max_new_tokens=6", "train.minibatches=2", "eval.samples=4"),
    *("rewards=python", "rewards.python.function=helpers.rewards_for_tests:letters"),
]
LORA = ["model.lora.rank=2", "model.lora.alpha=8"]


@pytest.fixture
def make(zoo, folders):
    """make(architecture, *words, recipe=...): its world."""

    def build(name, *words, recipe="ppo_gae"):
        path = folders.get(name, name)
        words = [f"recipe={recipe}", f"model.path={path}", *SMALL, *words]
        return build_world(make_plan(compose(words, zoo), zoo))

    return build


def optimizers_of(world):
    config = world.plan.recipe.config
    return {n: make_optimizer(x.parameters(), config[n]) for n, x in world.networks().items()}


def step(world, number=0):
    return training_step(world, optimizers_of(world), make_controller(world.plan), number)


def rolled(world, number=0):
    """A batch with all columns up to advantages."""
    config = world.plan.recipe.config
    prompts = draw(world, "train", config.rollout.prompts, "train", number)
    batch = collect(world, prompts, config.rollout.samples, stream="train", step=number)
    add_columns(world, batch, stream="train", step=number)
    add_rewards(world.plan, batch, config.kl.coef)
    add_advantages(world.plan, batch)
    world.kept = None
    return batch


def randomise_adapters(model, seed=0):
    """B starts at zero, so that an adapter does nothing yet."""
    generator = torch.Generator().manual_seed(seed)
    for name, weight in model.named_parameters():
        if "lora_B" in name:
            weight.data = torch.randn(weight.shape, generator=generator)


def state_of(world):
    """All weights, by network and name, as they are now."""
    return {
        f"{n}.{key}": x.clone()
        for n, network in world.networks().items()
        for key, x in network.state_dict().items()
    }


# ---------------------------------------------------------------- steps


@pytest.mark.parametrize(
    ("recipe", "extra"),
    [("ppo_gae", []), ("ppo_gae", ["critic.trunk=shared"]), ("grpo", [])],
    ids=["own critic", "shared trunk", "grpo"],
)
@EACH
def test_a_step_has_finite_metrics_and_moves_the_weights(make, name, recipe, extra):
    world = make(name, *extra, recipe=recipe)
    before = state_of(world)
    _, metrics = step(world)
    assert all(math.isfinite(value) for value in metrics.values())
    assert metrics["train/skipped"] == 0
    assert metrics["actor/grad_norm"] > 0
    after = state_of(world)
    assert all(torch.isfinite(x).all() for x in after.values())
    for network in world.networks():
        assert any(k.startswith(network) and not torch.equal(before[k], after[k]) for k in after)


# ---------------------------------------------------------------- log-probs


@pytest.fixture(scope="module")
def bare(folders):
    """bare(name): the model as transformers loads it, loaded once."""
    from transformers import AutoModelForCausalLM

    loaded = {}

    def load(name):
        if name not in loaded:
            loaded[name] = AutoModelForCausalLM.from_pretrained(folders[name]).eval()
        return loaded[name]

    return load


@EACH
def test_log_probs_are_those_of_the_bare_row_whatever_the_padding(make, bare, name):
    policy = make(name).policy
    prompts, responses, groups = ragged(12, each=3)
    found = []
    for left, right in ((0, 0), (5, 3)):
        columns = columns_of(prompts, responses, left=left, right=right, groups=groups)
        assert policy.trees(columns) == policy.takes_trees
        with torch.no_grad():
            found.append(policy.score(columns, want=("entropy",)))
            del columns["group_ids"]  # then each row goes by itself
            found.append(policy.score(columns, want=("entropy",)))
            alone = [policy.log_probs(take(columns, torch.tensor([i]))) for i in range(12)]
        found.append({"log_probs": torch.cat(alone)})
    for i, (prompt, response) in enumerate(zip(prompts, responses, strict=True)):
        with torch.no_grad():
            logits = bare(name)(input_ids=torch.tensor([prompt + response])).logits[0]
        log_pi = logits[len(prompt) - 1 : -1].log_softmax(-1)
        want = log_pi.gather(1, torch.tensor(response)[:, None])[:, 0]
        entropy = -(log_pi.exp() * log_pi).sum(-1)
        for out in found:
            torch.testing.assert_close(out["log_probs"][i, : len(response)], want, **NEAR)
            assert not out["log_probs"][i, len(response) :].any()
            if "entropy" in out:
                torch.testing.assert_close(out["entropy"][i, : len(response)], entropy, **NEAR)


@pytest.mark.parametrize("kind", ["granite", "cohere"])
def test_logits_that_are_scaled_after_the_head_are_seen(make, tmp_path, kind):
    """Then log-probs come from the model's own logits, and there is no head to put another to."""
    from transformers import AutoModelForCausalLM, CohereConfig, GraniteConfig

    scaled = {"granite": (GraniteConfig, {"logits_scaling": 2.0}),
              "cohere": (CohereConfig, {"logit_scale": 0.5})}  # fmt: skip
    known, extra = scaled[kind]
    model = AutoModelForCausalLM.from_config(known(**COMMON, **SPECIAL, **extra)).eval()
    model.save_pretrained(tmp_path)
    TOKENIZER.save_pretrained(tmp_path)
    world = make(tmp_path)
    assert not world.policy.plain_head
    prompts, responses, _ = ragged(4)
    found = world.policy.log_probs(columns_of(prompts, responses))
    for i, (prompt, response) in enumerate(zip(prompts, responses, strict=True)):
        with torch.no_grad():
            logits = model(input_ids=torch.tensor([prompt + response])).logits[0]
        want = logits[len(prompt) - 1 : -1].log_softmax(-1)
        want = want.gather(1, torch.tensor(response)[:, None])[:, 0]
        torch.testing.assert_close(found[i, : len(response)], want, **NEAR)
    _, metrics = step(world)
    assert all(math.isfinite(value) for value in metrics.values())
    with pytest.raises(ModelError, match="critic.trunk: shared needs a model whose head is one"):
        make(tmp_path, "critic.trunk=shared")


@EACH
def test_the_others_heads_are_plain(make, name):
    assert make(name).policy.plain_head


def test_a_model_with_a_state_instead_of_a_cache_is_sampled_by_its_own_loop(make, tmp_path):
    from transformers import AutoModelForCausalLM, Lfm2Config

    config = Lfm2Config(**{**COMMON, "num_hidden_layers": 3}, full_attn_idxs=[1], **SPECIAL)
    AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path)
    TOKENIZER.save_pretrained(tmp_path)
    world = make(tmp_path, "rollout.old_log_probs=sampled")
    world.policy.eos_ids = ENDS
    called = []
    plain = world.policy.model.generate
    world.policy.model.generate = lambda **kw: called.append(1) or plain(**kw)
    batch = rolled(world)
    assert called
    again = world.policy.log_probs(batch) * batch["response_mask"]
    torch.testing.assert_close(again, batch["old_log_probs"], **NEAR)


def test_only_models_without_a_window_read_a_prompt_once(make):
    takes = {name for name in CONFIGS if make(name).policy.takes_trees}
    assert takes == {"gpt2", "llama", "gemma"}


@EACH
def test_values_are_read_at_the_same_places_whatever_the_padding(make, name):
    prompts, responses, groups = ragged(12, each=3)
    for trunk in ("own", "shared"):
        critic = make(name, f"critic.trunk={trunk}").critic
        torch.nn.init.normal_(critic.head.weight)
        with torch.no_grad():
            tight = columns_of(prompts, responses)
            want = torch.cat([critic.predict(take(tight, torch.tensor([i]))) for i in range(12)])
            wide = columns_of(prompts, responses, left=4, right=2, groups=groups)
            found = critic.predict(wide)
        for i, response in enumerate(responses):
            n = len(response) + 1  # and after the last token
            torch.testing.assert_close(found[i, :n], want[i, :n], atol=1e-4, rtol=1e-5)


def test_full_kl_is_of_the_whole_vocabulary(make, bare):
    world = make("gemma2", "kl=full", recipe="grpo")
    for weight in world.policy.model.parameters():
        weight.data.mul_(1.1)
    columns = columns_of(*ragged(6)[:2], holes=0.3)
    kl, ref_log_probs = world.policy.full_kl(columns, world.reference)
    mine, theirs = (p.logits(columns)[:, :-1].log_softmax(-1) for p in
                    (world.policy, world.reference))  # fmt: skip
    mask = columns["response_mask"]
    want = (mine.exp() * (mine - theirs)).sum(-1) * mask
    torch.testing.assert_close(kl, want, atol=1e-4, rtol=1e-5)
    assert kl.max() > 0.01
    torch.testing.assert_close(ref_log_probs, world.reference.log_probs(columns), **NEAR)


# ---------------------------------------------------------------- decoding


ENDS = list(range(1, 16))  # so many tokens that end a response that rows end at different times


@pytest.mark.parametrize("extra", [(0, 1.0), (5, 1.0), (0, 0.6)], ids=["all", "top-k", "top-p"])
@EACH
def test_decoding_draws_what_transformers_own_loop_draws(make, name, extra):
    policy = make(name).policy
    policy.eos_ids, (policy.top_k, policy.top_p) = ENDS, extra
    texts = ["1+2=", "17+25=", "1+2=", "a prompt that is longer than others=", "17+25=", "9"]
    texts += [*"ABCDEF"]
    ids, mask = left_pad([TOKENIZER(t)["input_ids"] for t in texts], policy.pad_id, policy.device)
    uniforms = torch.rand(12, 20, generator=torch.Generator().manual_seed(1))
    ends = set()
    for u in (uniforms, None):
        found = []
        for function in (decode, _by_generation):
            with torch.no_grad():
                out = function(policy, ids, mask, u, 20)
            found.append(out | episode_columns(out["response_ids"], policy.eos_ids, 20, 0))
        ours, theirs = found
        chosen = ours["response_mask"]
        assert torch.equal(ours["response_ids"], theirs["response_ids"])
        for key in ("sampler_log_probs", "old_log_probs"):
            gap = torch.where(chosen > 0, ours[key] - theirs[key], 0)
            assert gap.abs().max() <= 1e-5, key
        ends |= set(chosen.sum(1).tolist())
    assert len(ends) > 2


@EACH
def test_what_was_sampled_has_the_log_probs_that_updates_find(make, name):
    world = make(name, "rollout.old_log_probs=sampled", "rollout.temperature=1.3")
    world.policy.eos_ids = ENDS
    batch = rolled(world)
    again = world.policy.log_probs(batch) * batch["response_mask"]
    torch.testing.assert_close(again, batch["old_log_probs"], **NEAR)


def test_a_prompt_that_occurs_several_times_is_read_once(make):
    policy = make("llama").policy
    read = []
    policy.model.register_forward_pre_hook(
        lambda module, args, kw: read.append(kw["input_ids"].shape), with_kwargs=True
    )
    ids, mask = left_pad([[5, 6, 7]] * 4 + [[8, 9]] * 4, policy.pad_id, policy.device)
    policy.generate(ids, mask, torch.rand(8, 4))
    assert read[0] == (2, 3)
    assert read[1] == (8, 1)


def test_rows_that_have_ended_leave_the_batch(make):
    policy = make("llama").policy
    policy.eos_ids = ENDS
    read = []
    policy.model.register_forward_pre_hook(
        lambda module, args, kw: read.append(len(kw["input_ids"])), with_kwargs=True
    )
    ids, mask = left_pad([[5, 6, i] for i in range(20, 40)], policy.pad_id, policy.device)
    out = policy.generate(ids, mask, torch.rand(20, 30, generator=torch.manual_seed(0)))
    mask = episode_columns(out["response_ids"], ENDS, 30, 0)["response_mask"]
    live = mask.sum(0)[1:].tolist()  # rows that still say something at each step
    assert read[1:] != [20] * (len(read) - 1)
    assert all(rows >= 0.9 * there for rows, there in zip(live, read[1:], strict=True))


def test_a_cache_that_cannot_give_up_rows_goes_through_generate(make, monkeypatch):
    policy = make("llama").policy
    ids, mask = left_pad([[5, 6, 7], [8, 9]], policy.pad_id, policy.device)
    uniforms = torch.rand(2, 4)
    want = policy.generate(ids, mask, uniforms)
    monkeypatch.setattr("rlzoo.decode._gives_up_rows", lambda cache: False)
    called = []
    plain = policy.model.generate
    monkeypatch.setattr(policy.model, "generate", lambda **kw: called.append(1) or plain(**kw))
    found = policy.generate(ids, mask, uniforms)
    assert called == [1]
    for name, x in want.items():
        torch.testing.assert_close(found[name], x, atol=1e-5, rtol=0)


# ---------------------------------------------------------------- LoRA


@EACH
def test_lora_with_the_adapter_off_is_the_base_exactly(make, name):
    columns = columns_of(*ragged(8)[:2])
    plain = make(name).policy
    policy = make(name, *LORA).policy
    randomise_adapters(policy.model)
    reference = policy.frozen_copy()
    with torch.no_grad():
        want = plain.log_probs(columns)
        on = policy.log_probs(columns)
        assert torch.equal(reference.log_probs(columns), want)
        assert torch.equal(policy.log_probs(columns), on)  # and it is on again
    assert not torch.allclose(on, want)


@pytest.mark.parametrize("trunk", ["own", "shared"])
@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_lora_trains_adapters_and_nothing_else(make, name, trunk):
    plain = make(name, f"critic.trunk={trunk}")
    world = make(name, *LORA, f"critic.trunk={trunk}", "actor.lr=1e-2")
    assert world.reference.model is world.policy.model  # no second network
    want = rolled(plain)
    batch, metrics = step(world)
    assert torch.equal(batch["response_ids"], want["response_ids"])
    assert torch.equal(batch["ref_log_probs"], want["ref_log_probs"])
    assert all(math.isfinite(value) for value in metrics.values())
    trained = {n for n, x in world.policy.model.named_parameters() if x.requires_grad}
    assert trained
    assert all("lora_" in n for n in trained)
    now = world.policy.model.state_dict()
    for key, x in plain.policy.model.state_dict().items():
        left, _, right = key.rpartition(".")
        assert torch.equal(now[key if key in now else f"{left}.base_layer.{right}"], x), key
    with torch.no_grad():  # the reference is where it was, the policy is not
        assert torch.equal(world.reference.log_probs(batch), plain.policy.log_probs(batch))
        assert not torch.allclose(world.policy.log_probs(batch), plain.policy.log_probs(batch))


class Stop(Exception):
    """What ends a run early."""


class StopAt:
    """A display that gives up at a step."""

    def __init__(self, at):
        self.at = at

    def __getattr__(self, name):
        return lambda *given: None

    def step(self, line, progress):
        if line["step"] == self.at:
            raise Stop


@pytest.mark.parametrize("trunk", ["own", "shared"])
def test_a_lora_checkpoint_holds_the_adapters_and_a_resumed_run_is_the_same(
    zoo, folders, tmp_path, trunk
):
    words = [f"model.path={folders['llama']}", *SMALL, *LORA, f"critic.trunk={trunk}",
             "train.steps=3", "checkpoint.every=1"]  # fmt: skip
    whole = rlzoo.run("ppo_gae", [*words, f"run.dir={tmp_path}/whole"], zoo=zoo)
    cut = [*words, f"run.dir={tmp_path}/cut"]
    with pytest.raises(Stop):
        rlzoo.run("ppo_gae", cut, zoo=zoo, display=StopAt(2))
    again = resume(tmp_path / "cut", zoo=zoo)
    assert [line["reward/mean"] for line in again.metrics if "reward/mean" in line] == [
        line["reward/mean"] for line in whole.metrics if "reward/mean" in line
    ]
    kept = {}
    for run in (whole, again):
        newest = sorted((run.path / "checkpoints").glob("step-*"))[-1]
        kept[run.path.name] = {
            n: load_file(newest / f"{n}.safetensors") for n in ("actor", "critic")
        }
    assert all("lora_" in key for key in kept["whole"]["actor"])
    own = {key for key in kept["whole"]["critic"] if not key.startswith("head.")}
    assert all("lora_" in key for key in own)
    assert bool(own) == (trunk == "own")
    for network, tensors in kept["whole"].items():
        for key, x in tensors.items():
            assert torch.equal(x, kept["cut"][network][key]), key


@pytest.mark.parametrize("name", ["gpt2", "qwen2"])
def test_a_lora_run_leaves_an_adapter_that_peft_transformers_and_rlzoo_load(
    zoo, folders, tmp_path, name, bare, make
):
    from peft import PeftModel
    from transformers import AutoModelForCausalLM, AutoTokenizer

    words = [f"model.path={folders[name]}", *SMALL, *LORA, "train.steps=1", "actor.lr=1e-2"]
    run = rlzoo.run("grpo", [*words, f"run.dir={tmp_path}/run"], zoo=zoo)
    folder = run.path / "model"
    files = {path.name for path in folder.iterdir()}
    assert {"adapter_config.json", "adapter_model.safetensors", "tokenizer.json"} <= files
    assert "model.safetensors" not in files
    said = json.loads((folder / "adapter_config.json").read_text())
    assert said["base_model_name_or_path"] == str(folders[name].resolve())
    assert (said["r"], said["lora_alpha"]) == (2, 8)
    assert len(AutoTokenizer.from_pretrained(folder)) == len(TOKENIZER)

    ids = torch.randint(3, len(TOKENIZER), (2, 9), generator=torch.manual_seed(0))
    base = AutoModelForCausalLM.from_pretrained(folders[name])
    with torch.no_grad():
        by_peft = PeftModel.from_pretrained(base, folder).eval()(ids).logits
        by_transformers = AutoModelForCausalLM.from_pretrained(folder).eval()(ids).logits
        by_rlzoo = load_causal_lm(folder)(ids).logits
        assert not torch.allclose(by_peft, bare(name)(ids).logits, atol=1e-3)
        torch.testing.assert_close(by_transformers, by_peft)
        torch.testing.assert_close(by_rlzoo, by_peft, **NEAR)
        # It is a start, too: for all weights, or for an adapter that lies on top of it.
        assert all(x.requires_grad for x in load_causal_lm(folder).parameters())
        world = make(folder, *LORA)
        torch.testing.assert_close(world.policy.model(ids).logits, by_peft, **NEAR)
        randomise_adapters(world.policy.model)
        world.policy.model.save_pretrained(tmp_path / "second")
        world.tokenizer.save_pretrained(tmp_path / "second")
        both = load_causal_lm(tmp_path / "second")(ids).logits
        torch.testing.assert_close(both, world.policy.model(ids).logits, atol=1e-4, rtol=1e-5)
    assert not torch.allclose(both, by_peft, atol=1e-3)


def test_a_critic_of_its_own_has_adapters_of_its_own(make, folders):
    for words in ([], [f"critic.init={folders['gemma']}"]):
        world = make("llama", *LORA, *words)
        trained = {n for n, x in world.critic.named_parameters() if x.requires_grad}
        assert {"head.weight", "head.bias"} < trained
        assert all("lora_" in n for n in trained if not n.startswith("head."))
        step(world)


# ---------------------------------------------------------------- precision


def changed(before, after):
    """The share of entries that differ, over floating tensors."""
    pairs = [(x, after[k]) for k, x in before.items() if x.is_floating_point()]
    return sum((x != y).sum().item() for x, y in pairs) / sum(x.numel() for x, _ in pairs)


@EACH
def test_a_tiny_learning_rate_changes_weights_under_bfloat16_autocast(make, name):
    world = make(name, "model.autocast=bfloat16", "actor.lr=1e-6", "train.minibatches=1",
                 recipe="grpo")  # fmt: skip
    before = state_of(world)
    assert {x.dtype for x in before.values()} == {torch.float32}
    step(world)
    assert changed(before, state_of(world)) > 0.5


def test_weights_below_float32_lose_it_and_the_plan_says_so(make, zoo):
    words = ["model.dtype=bfloat16", "model.autocast=none", "actor.lr=1e-6", "kl.place=none"]
    world = make("llama", *words, recipe="grpo")
    assert any("model.dtype" in text for text in world.plan.warnings)
    before = state_of(world)
    step(world)
    assert changed(before, state_of(world)) < 0.01
    world = make("llama", *words, *LORA, recipe="grpo")
    assert not any("model.dtype" in text for text in world.plan.warnings)
    before = {k: x for k, x in state_of(world).items() if "lora_B" in k}
    assert {x.dtype for x in before.values()} == {torch.float32}
    step(world)
    assert changed(before, state_of(world)) > 0.5
    assert not any("model.dtype" in text for text in make("llama").plan.warnings)


# ---------------------------------------------------------------- memory


def count_calls(module):
    calls = []
    module.register_forward_pre_hook(lambda *given: calls.append(torch.is_grad_enabled()))
    return calls


def first_mlp(trunk):
    return next(m for n, m in trunk.named_modules() if n.endswith("0.mlp"))


@pytest.mark.parametrize("extra", [[], ["critic.trunk=shared"], LORA], ids=str)
@pytest.mark.parametrize("name", ["gpt2", "llama", "gemma2"])
def test_gradient_checkpointing_gives_the_same_gradient_and_is_used(make, name, extra):
    results = []
    for more in ([], ["model.gradient_checkpointing=true"]):
        world = make(name, *extra, *more)
        assert not world.policy.model.training
        batch = rolled(world)
        calls = {"actor": count_calls(first_mlp(world.policy.model))}
        if world.critic.trunk is not None:
            calls["critic"] = count_calls(first_mlp(world.critic.trunk))
        sums = gradients(world, batch.select(torch.arange(batch.rows)), 0.1)
        found = {
            f"{n}.{k}": x.grad
            for n, network in world.networks().items()
            for k, x in network.named_parameters()
            if x.grad is not None
        }
        results.append((found, sums, {n: sum(c) for n, c in calls.items()}))
        assert not world.policy.model.training
    (plain, sums, once), (again, same_sums, twice) = results
    assert twice == {n: 2 * c for n, c in once.items()}
    assert again.keys() == plain.keys()
    for key, x in plain.items():
        torch.testing.assert_close(again[key], x, atol=1e-6, rtol=1e-5, msg=key)
    assert same_sums == pytest.approx(sums, abs=1e-6)


def watch_passes(monkeypatch):
    """(positions, whether with a gradient) of each pass of a policy from here on."""
    seen, plain = [], Policy._run

    def run(self, rows):
        seen.append((rows.ids.numel(), torch.is_grad_enabled()))
        return plain(self, rows)

    monkeypatch.setattr(Policy, "_run", run)
    return seen


def with_gradient(seen):
    return sum(positions for positions, grad in seen if grad)


def test_half_the_room_is_half_the_rows_in_a_pass(make):
    for words in (["train.microbatch=4"], ["train.token_budget=60"], []):
        world = make("llama", *words, "rollout.prompts=16")
        batch = rolled(world)
        before = world.parts(batch, grad=True)
        world.room = 0.5
        after = world.parts(batch, grad=True)
        if words:
            assert len(after) > 1.5 * len(before)
        assert sorted(torch.cat(after).tolist()) == list(range(batch.rows))


def out_of_memory(monkeypatch, place, name, *, times):
    """The next `times` calls of `place.name` with a gradient find no memory."""
    plain, left = getattr(place, name), [times]

    def call(*args, **kwargs):
        if left[0] and torch.is_grad_enabled():
            left[0] -= 1
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
        return plain(*args, **kwargs)

    monkeypatch.setattr(place, name, call)
    return left


MEMORY = (
    ([], (Policy, "score")),
    ([], (Critic, "predict")),
    (["critic.trunk=shared"], (Policy, "score")),
    (["train.minibatches=1"], (Policy, "score")),  # there a pass is kept for the columns
    (["train.microbatch=4"], (Policy, "score")),
    (["train.token_budget=60"], (Policy, "score")),
)


@pytest.mark.parametrize(("extra", "place"), MEMORY)
def test_out_of_memory_halves_the_passes_once_and_changes_nothing(make, monkeypatch, extra, place):
    want = make("llama", *extra)
    step(want)
    world = make("llama", *extra)
    left = out_of_memory(monkeypatch, *place, times=1)
    _, metrics = step(world)
    assert left == [0]
    assert len(world.notes) == 1
    assert "out of memory" in world.notes[0]
    assert world.room == 0.5
    assert metrics["train/skipped"] == 0
    now = state_of(world)
    for key, x in state_of(want).items():
        torch.testing.assert_close(now[key], x, atol=1e-6, rtol=0, msg=key)
    out_of_memory(monkeypatch, *place, times=1)
    with pytest.raises(torch.OutOfMemoryError):
        step(world, 1)


def test_a_pass_that_was_kept_goes_when_memory_runs_out(make, monkeypatch):
    """It is what fills the memory; the update makes smaller ones."""
    from rlzoo.train import update as module

    world = make("llama", "train.minibatches=1")
    seen = watch_passes(monkeypatch)
    plain, left = module._backward, [1]

    def backward(*given, **named):
        if left[0]:
            left[0] -= 1
            seen.clear()
            assert world.kept is not None
            # As torch says it on a CPU.
            raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate")
        return plain(*given, **named)

    monkeypatch.setattr(module, "_backward", backward)
    step(world)
    assert world.kept is None
    assert with_gradient(seen) > 0
    monkeypatch.undo()
    want = make("llama", "train.minibatches=1")
    step(want)
    now = state_of(world)
    for key, x in state_of(want).items():
        torch.testing.assert_close(now[key], x, atol=1e-6, rtol=0, msg=key)


def test_the_failed_pass_is_gone_before_the_next_is_tried(make):
    """Its activations hang on the traceback, which must not be alive then."""
    import weakref

    world = make("llama")
    alive = []

    def attempt():
        activations = torch.ones(3)
        alive.append(weakref.ref(activations))
        if len(alive) == 1:
            raise torch.OutOfMemoryError
        return [there() is not None for there in alive]

    assert world.fitted(attempt) == [False, True]


def test_memory_that_runs_out_without_a_gradient_halves_passes_too(make, monkeypatch):
    world = make("llama")
    plain, left = Policy.log_probs, [1]

    def call(self, columns):
        if left[0]:
            left[0] -= 1
            raise torch.OutOfMemoryError
        return plain(self, columns)

    monkeypatch.setattr(Policy, "log_probs", call)
    batch = rolled(world)
    want = make("llama")
    assert world.room == 0.5
    torch.testing.assert_close(batch["ref_log_probs"], rolled(want)["ref_log_probs"], **NEAR)


def test_a_run_that_ran_out_of_memory_says_so(zoo, folders, tmp_path, monkeypatch):
    said = []

    class Listening(StopAt):
        def note(self, text):
            said.append(text)

    out_of_memory(monkeypatch, Policy, "score", times=1)
    words = [f"model.path={folders['llama']}", *SMALL, "train.steps=2", f"run.dir={tmp_path}/run"]
    rlzoo.run("grpo", words, zoo=zoo, display=Listening(None))
    assert [text for text in said if "out of memory" in text] == [
        "out of memory; going on with half the rows in a pass (same gradient)"
    ]


def test_an_error_that_is_not_of_memory_goes_through(make, monkeypatch):
    world = make("llama")
    monkeypatch.setattr(Policy, "score", lambda *a, **k: (_ for _ in ()).throw(RuntimeError("no")))
    with pytest.raises(RuntimeError, match="^no$"):
        step(world)
    assert world.room == 1


# ---------------------------------------------------------------- how rows are cut


CUTS = (
    ("grpo", []),
    ("rloo", ["critic.trunk=own"]),
    ("dr_grpo", []),
    ("ppo_gae", []),
    ("ppo_gae", ["critic.trunk=shared"]),
    ("gspo", []),
    ("grpo", ["policy_loss=tpo"]),
    ("rloo", ["kl.place=none", "actor.entropy_coef=0.01"]),
    ("dr_grpo", ["kl.place=none"]),
)


@pytest.mark.parametrize(("recipe", "extra"), CUTS)
def test_how_rows_are_cut_padded_and_skipped_changes_no_parameter(make, recipe, extra, monkeypatch):
    """In float64, as GPT-2 can: AdamW makes up to lr / eps times as much of a rounding error."""

    def after(*words, left=0, right=0):
        world = make("gpt2", *extra, *words, "rollout.prompts=6", recipe=recipe)
        world.policy.eos_ids = ENDS  # ragged rows
        for network in (*world.networks().values(), getattr(world.reference, "model", None)):
            if network is not None:
                network.double()
        batch = rolled(world)
        assert len(set(lengths(batch)[1].tolist())) > 2
        for group in (1, 4):  # groups without a signal
            batch["advantages"][batch["group_ids"] == group] = 0
        seen.clear()
        update(world, _padded(batch, left, right), optimizers_of(world), 0, 0.1)
        counts.append(len(seen))
        return state_of(world)

    seen, counts = watch_passes(monkeypatch), []
    whole = after("train.skip_no_signal=false")
    variants = {
        "skipped": after(),
        "padding": after(left=3, right=4),
        "microbatch of 1": after("train.microbatch=1"),
        "microbatch of 5": after("train.microbatch=5"),
        "budget of a row": after("train.token_budget=14"),
        "budget of some": after("train.token_budget=70"),
    }
    assert max(counts) > 3 * counts[0]  # it was cut, indeed
    for how, state in variants.items():
        for key, x in whole.items():
            torch.testing.assert_close(state[key], x, atol=1e-9, rtol=0, msg=f"{how}: {key}")


def _padded(batch, left, right):
    """The same rows with more padding on both sides."""
    from rlzoo.mdp.batch import Batch
    from rlzoo.plugin.columns import COLUMNS

    wider = Batch(F.pad(batch["response_mask"], (0, right)))
    for name, x in batch.items():
        if name == "response_mask":
            continue
        shape = COLUMNS[name].shape
        by = {"BT": (0, right), "BP": (left, 0)}.get(shape)
        wider.add(name, F.pad(x, by) if by else x)
    return wider


@pytest.mark.parametrize(
    "words", [["train.microbatch=2"], ["train.epochs=1", "train.minibatches=1"]]
)
def test_gradients_of_one_network_are_held_at_a_time(make, words, monkeypatch):
    """Those of the actor are gone when the critic's are made, and all of them after the step; also
    where the forward passes of both were kept."""
    world, held = make("llama", *words), []

    def with_gradient():
        return {
            n
            for n, x in world.networks().items()
            if any(p.grad is not None for p in x.parameters())
        }

    def watched(*arguments, **options):
        backward(*arguments, **options)
        held.append(with_gradient())

    backward = update_module._backward
    monkeypatch.setattr(update_module, "_backward", watched)
    step(world)
    assert {"actor"} in held
    assert {"critic"} in held
    assert {"actor", "critic"} not in held
    assert not with_gradient()


def test_groups_without_a_signal_are_not_read(make, monkeypatch):
    seen = watch_passes(monkeypatch)
    read = {}
    for skip in ("true", "false"):
        world = make("llama", "kl.place=none", f"train.skip_no_signal={skip}", recipe="grpo")
        batch = rolled(world)
        batch["advantages"][batch["group_ids"] != 2] = 0
        seen.clear()
        gradients(world, batch.select(torch.arange(batch.rows)), 0.0)
        read[skip] = with_gradient(seen)
    rows = batch.select((batch["group_ids"] == 2).nonzero()[:, 0])
    assert read["true"] == world.policy.layout(rows).ids.numel()
    assert read["true"] < 0.5 * read["false"]


def test_a_mini_batch_without_any_signal_is_a_step_of_nothing(make):
    world = make("llama", "kl.place=none", recipe="grpo")
    batch = rolled(world)
    batch["advantages"].zero_()
    before = state_of(world)
    metrics = update(world, batch, optimizers_of(world), 0, 0.0)
    assert metrics["actor/grad_norm"] == 0
    assert all(torch.equal(x, before[key]) for key, x in state_of(world).items())


def test_packed_passes_are_hardly_padded():
    prompts, responses, groups = ragged(600, prompt=(3, 40), response=(1, 120), each=4)
    columns = columns_of(prompts, responses, groups=groups)
    real = sum(int(x.sum()) for x in lengths(columns))
    longest = int(sum(lengths(columns)).max())
    for budget in (longest, 2000, 10_000):
        parts = pack(columns, budget)
        assert sorted(torch.cat(parts).tolist()) == list(range(600))
        sizes = [align(take(columns, part)).ids.numel() for part in parts]
        assert max(sizes) <= budget
        assert sum(sizes) < real / 0.9
    # Whereas in the order in which they come:
    chunks = torch.arange(600).split(40)
    assert sum(align(take(columns, rows)).ids.numel() for rows in chunks) > real / 0.7
    trees = pack(columns, 10_000, trees=True)
    assert sorted(torch.cat(trees).tolist()) == list(range(600))
    for rows in trees:
        group = torch.isin(columns["group_ids"], columns["group_ids"][rows])
        assert int(group.sum()) == len(rows)  # whole groups


def test_a_budget_below_the_longest_row_is_named(make):
    world = make("llama", "train.token_budget=8")
    with pytest.raises(RlzooError, match=r"train.token_budget: 8 positions .* longest row, which"):
        step(world)


# ---------------------------------------------------------------- ends and limits


def test_the_models_own_list_of_ends_ends_responses(zoo, tmp_path, make):
    """Chat models say their end-of-turn tokens in generation_config.json alone."""
    folder = save_model(tmp_path / "chat", "qwen2")
    file = folder / "generation_config.json"
    said = json.loads(file.read_text()) | {"eos_token_id": ENDS, "temperature": 0.2, "top_k": 1}
    file.write_text(json.dumps(said))
    world = make(folder)
    assert world.policy.eos_ids == ENDS
    batch = rolled(world)
    last = batch["response_attention"].long().sum(1, keepdim=True) - 1
    ended = torch.isin(batch["response_ids"].gather(1, last)[:, 0], torch.tensor(ENDS))
    assert torch.equal(ended, batch["terminated"])
    assert len(set(batch["response_ids"].gather(1, last)[ended].flatten().tolist())) > 1
    # What is saved of it ends where it ended in training, and samples by no habit of its own.
    world.policy.model.save_pretrained(tmp_path / "saved")
    again = json.loads((tmp_path / "saved" / "generation_config.json").read_text())
    assert again["eos_token_id"] == ENDS
    assert "temperature" not in again
    assert "top_k" not in again


def test_a_tokenizer_without_pad_is_padded_by_eos_and_rows_still_end_once(tmp_path, make):
    folder = save_model(tmp_path / "padless", "gpt2")
    for name in ("tokenizer_config.json", "special_tokens_map.json"):
        if (folder / name).exists():
            said = json.loads((folder / name).read_text())
            said.pop("pad_token", None)
            (folder / name).write_text(json.dumps(said))
    world = make(folder)
    assert world.policy.pad_id == TOKENIZER.eos_token_id
    world.policy.eos_ids = [*world.policy.eos_ids, *range(3, 16)]
    batch, metrics = step(world)
    assert all(math.isfinite(value) for value in metrics.values())
    ids, mask = batch["response_ids"], batch["response_mask"]
    assert (ids[mask == 0] == TOKENIZER.eos_token_id).all()
    ends = torch.isin(ids, torch.tensor(world.policy.eos_ids)) & (mask > 0)
    assert (ends.sum(1) <= 1).all()  # padding is no second end


def test_positions_beyond_the_models_are_refused(make):
    world = make("gpt2", "rollout.max_new_tokens=60")
    with pytest.raises(ModelError, match=r"max_new_tokens: prompts of \d+ tokens and 60 new ones "
                       "are more than the model's 64 positions"):  # fmt: skip
        step(world)


# ---------------------------------------------------------------- compile


def compiled_like_plain(make, name, *words, steps=2):
    plain, world = (make(name, *words, *more) for more in ([], ["model.compile=true"]))
    for number in range(steps):
        _, want = step(plain, number)
        _, metrics = step(world, number)
        assert metrics["actor/pg_loss"] == pytest.approx(want["actor/pg_loss"], abs=1e-5)
    now = state_of(world)
    assert now.keys() == state_of(plain).keys()
    for key, x in state_of(plain).items():
        torch.testing.assert_close(now[key], x, atol=1e-5, rtol=0, msg=key)


def test_compiled_layers_do_the_same_and_are_compiled_a_few_times(make, monkeypatch):
    """Traced, and run as they are: what inductor makes of them takes its time (see below)."""
    graphs = []

    def backend(graph, inputs):
        graphs.append(graph)
        return graph.forward

    plain = torch.nn.Module.compile
    monkeypatch.setattr(torch.nn.Module, "compile", lambda self, **kw: plain(
        self, **kw, backend=backend))  # fmt: skip
    torch.compiler.reset()
    compiled_like_plain(make, "llama", "critic.trunk=shared", steps=1)
    assert 1 <= len(graphs) <= 5  # with and without a gradient, a mask; of the reference


@pytest.mark.study
@pytest.mark.parametrize("words", [[], ["model.gradient_checkpointing=true"], LORA])
@pytest.mark.parametrize("name", ["gpt2", "llama", "gemma2"])
def test_compiled_by_inductor_they_do_the_same(make, name, words):
    torch.compiler.reset()
    compiled_like_plain(make, name, *words)
