"""The vLLM sampler's logic with a stand-in for the engine: no vLLM could be run."""

import sys
from types import ModuleType, SimpleNamespace

import pytest
import torch

from rlzoo.errors import RecipeError, RlzooError
from rlzoo.lm.build import build_models
from rlzoo.recipe.compose import compose
from rlzoo.recipe.plan import make_plan
from rlzoo.rollout.columns import add_columns
from rlzoo.rollout.sample import collect, draw


class Engine:
    """Draws by itself from the weights that it was handed last, and keeps a prefix cache."""

    def __init__(self, policy, **settings):
        self.policy, self.settings = policy, settings
        self.weights = None
        self.handed = 0
        self.stale = False
        self.asked = []

    def apply_model(self, function):
        def load_weights(weights):
            self.weights = {name: tensor.clone() for name, tensor in weights}
            self.handed += 1
            self.stale = True

        function(SimpleNamespace(load_weights=load_weights))

    def reset_prefix_cache(self):
        self.stale = False

    def generate(self, prompts, asked, use_tqdm):
        assert not self.stale, "keys and values of other weights are still in the cache"
        for name, tensor in self.policy.model.named_parameters():
            assert torch.equal(self.weights[name], tensor), f"{name} is not the policy's"
        self.asked.append(asked)
        self.prompts = [prompt["prompt_token_ids"] for prompt in prompts]
        outputs = []
        for prompt, one in zip(prompts, asked, strict=True):
            generator = torch.Generator().manual_seed(one.seed)
            tokens, log_probs = [], []
            while len(tokens) < one.max_tokens:
                ids = torch.tensor([prompt["prompt_token_ids"] + tokens])
                with torch.no_grad():
                    log_pi = (self.policy.model(ids).logits[0, -1] / one.temperature).log_softmax(
                        -1
                    )
                log_pi = log_pi.bfloat16().float()  # an engine rounds otherwise
                token = int(torch.multinomial(log_pi.exp(), 1, generator=generator))
                tokens.append(token)
                log_probs.append({token: SimpleNamespace(logprob=log_pi[token].item())})
                if token in one.stop_token_ids:
                    break
            said = SimpleNamespace(token_ids=tokens, logprobs=log_probs)
            outputs.append(SimpleNamespace(outputs=[said]))
        return outputs


@pytest.fixture
def make(zoo, words, monkeypatch):
    """make(*words) -> a world whose sampler is a stand-in engine, and the engines made so far."""
    plugin = sys.modules[zoo.samplers["vllm"].function.__module__]
    monkeypatch.setattr(plugin, "find_spec", lambda name: object())
    module, engines, worlds = ModuleType("vllm"), [], []
    module.SamplingParams = lambda **given: SimpleNamespace(**given)

    def start(**settings):
        engines.append(Engine(worlds[-1].policy, **settings))
        return engines[-1]

    module.LLM = start
    monkeypatch.setitem(sys.modules, "vllm", module)
    monkeypatch.setenv("VLLM_ENABLE_V1_MULTIPROCESSING", "0")

    def world(*more):
        recipe = compose(["recipe=grpo", *words, "sampler=vllm", *more], zoo)
        worlds.append(build_models(make_plan(recipe, zoo)))
        return worlds[-1]

    return world, engines


def roll(world, step=0):
    batch = collect(world, draw(world, "train", 4, "train", step), 4, stream="train", step=step)
    add_columns(world, batch, stream="train", step=step)
    return batch


def test_its_log_probs_are_the_samplers_and_the_policys_are_computed_anew(make):
    build, _ = make
    world = build("correction=tis", "rollout.temperature=0.8")
    batch = roll(world)
    mask = batch["response_mask"].bool()
    own = world.policy.log_probs(batch)
    torch.testing.assert_close(batch["old_log_probs"][mask], own[mask], atol=1e-5, rtol=0)
    gap = (batch["old_log_probs"] - batch["sampler_log_probs"]).abs()
    assert 0 < gap.max() < 0.05  # the engine's rounding
    weight = (batch["old_log_probs"] - batch["sampler_log_probs"]).exp().clamp(max=2)
    torch.testing.assert_close(batch["tis"][mask], weight[mask])
    assert (batch["sampler_log_probs"][~mask] == 0).all()
    assert (batch["terminated"] ^ batch["truncated"]).all()
    assert world.meter.tokens == int(mask.sum())


def test_the_engine_is_made_once_and_handed_the_weights_of_now(make):
    build, engines = make
    world = build()
    roll(world)
    optimizer = torch.optim.AdamW(world.policy.model.parameters(), lr=0.01, fused=True)
    for p in world.policy.model.parameters():
        p.grad = torch.ones_like(p)
    optimizer.step()
    roll(world, 1)  # the engine looks whether it has the policy's weights
    assert len(engines) == 1
    assert engines[0].handed == 2
    other = build()
    roll(other)
    assert len(engines) == 2


def test_what_is_asked_of_the_engine(make):
    build, engines = make
    world = build("rollout.temperature=0.8", "rollout.top_p=0.9", "sampler.memory=0.5",
                  "sampler.max_length=64", "task.min_digits=1")  # fmt: skip
    batch = roll(world)
    assert engines[0].prompts == [world.prompt_format.encode(text) for text in batch["prompts"]]
    assert len(set(map(len, engines[0].prompts))) > 1, "none is padded: this shows nothing"
    (asked,) = engines[0].asked
    assert {(a.temperature, a.top_k, a.top_p, a.max_tokens, a.logprobs) for a in asked} == {
        (0.8, -1, 0.9, 5, 0)
    }
    assert len({a.seed for a in asked}) == 16  # samples of a prompt differ
    assert all(a.stop_token_ids == world.policy.eos_ids for a in asked)
    settings = engines[0].settings
    assert settings["gpu_memory_utilization"] == 0.5
    assert settings["max_model_len"] == 64
    assert settings["logprobs_mode"] == "processed_logprobs"
    roll(world)
    assert [a.seed for a in engines[0].asked[1]] == [a.seed for a in asked]  # of the step and row


def test_without_vllm_and_with_lora_it_says_so(zoo, words, make, monkeypatch):
    build, _ = make
    with pytest.raises(RlzooError, match="LoRA adapters cannot be handed over"):
        roll(build("model.lora.rank=2"))
    plugin = sys.modules[zoo.samplers["vllm"].function.__module__]
    monkeypatch.setattr(plugin, "find_spec", lambda name: None)
    recipe = compose(["recipe=grpo", *words, "sampler=vllm"], zoo)
    with pytest.raises(RecipeError, match=r"sampler.*needs vLLM: pip install 'rlzoo-llm\[vllm\]'"):
        make_plan(recipe, zoo)
