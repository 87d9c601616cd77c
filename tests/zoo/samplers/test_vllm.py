"""The vLLM sampler's logic with a stand-in for the engine.

With a real one: tests/reference/make_vllm.py."""

import sys
from types import ModuleType, SimpleNamespace

import pytest
import torch
from transformers import AutoModelForCausalLM

from rlzoo.errors import RecipeError, RlzooError
from rlzoo.lm.build import build_world
from rlzoo.recipe.compose import compose
from rlzoo.recipe.plan import make_plan
from rlzoo.rollout.sample import collect, draw
from rlzoo.step.columns import add_columns


class Engine:
    """A model of its own, with a prefix cache and a packed head that know old weights."""

    def __init__(self, **settings):
        self.settings = settings
        self.model = AutoModelForCausalLM.from_pretrained(settings["model"], dtype=torch.float32)
        config = SimpleNamespace(max_model_len=settings["max_model_len"] or 64)
        self.llm_engine = SimpleNamespace(model_config=config)
        self.handed, self.asked = 0, []
        self.stale = self.head_is_old = False

    def collective_rpc(self, method, kwargs):
        assert method == "reload_weights"
        given = dict(kwargs["weights_iterator"])
        _, unknown = self.model.load_state_dict(given, strict=False)
        assert not unknown, unknown
        self.handed += 1
        self.stale = self.head_is_old = True

    def apply_model(self, function):
        def pack(head):
            self.head_is_old = False

        method = SimpleNamespace(process_weights_after_loading=pack)
        function(SimpleNamespace(lm_head=SimpleNamespace(cpu_linear=0, quant_method=method)))

    def reset_prefix_cache(self):
        self.stale = False

    def generate(self, prompts, asked, use_tqdm):
        assert not self.head_is_old, "the packed head is of other weights"
        assert not self.stale, "keys and values of other weights are still in the cache"
        self.asked.append(asked)
        self.prompts = [prompt["prompt_token_ids"] for prompt in prompts]
        outputs = []
        for prompt, one in zip(prompts, asked, strict=True):
            generator = torch.Generator().manual_seed(one.seed)
            tokens, log_probs = [], []
            while len(tokens) < one.max_tokens:
                ids = torch.tensor([prompt["prompt_token_ids"] + tokens])
                with torch.no_grad():
                    log_pi = (self.model(ids).logits[0, -1] / one.temperature).log_softmax(-1)
                log_pi = log_pi.bfloat16().float()  # an engine rounds otherwise
                token = int(torch.multinomial(log_pi.exp(), 1, generator=generator))
                tokens.append(token)
                log_probs.append({token: SimpleNamespace(logprob=log_pi[token].item())})
                if token in one.stop_token_ids:
                    break
            ended = "stop" if tokens[-1] in one.stop_token_ids else "length"
            said = SimpleNamespace(token_ids=tokens, logprobs=log_probs, finish_reason=ended)
            outputs.append(SimpleNamespace(outputs=[said]))
        return outputs


@pytest.fixture
def make(zoo, words, monkeypatch):
    """make(*words) -> a world whose sampler is a stand-in engine, and the engines made so far."""
    plugin = sys.modules[zoo.samplers["vllm"].function.__module__]
    monkeypatch.setattr("rlzoo_zoo.packages.find_spec", lambda name: object())
    module, engines = ModuleType("vllm"), []
    module.SamplingParams = lambda **given: SimpleNamespace(**given)

    def start(**settings):
        engines.append(Engine(**settings))
        return engines[-1]

    module.LLM = start
    monkeypatch.setitem(sys.modules, "vllm", module)
    for name in ("ENABLE_V1_MULTIPROCESSING", "LOGGING_LEVEL", "NO_USAGE_STATS",
                 "CPU_OMP_THREADS_BIND"):  # fmt: skip
        monkeypatch.setenv(f"VLLM_{name}", "0")
    monkeypatch.setattr(plugin, "ENGINES", {})

    def world(*more):
        recipe = compose(["recipe=grpo", *words, "sampler=vllm", *more], zoo)
        return build_world(make_plan(recipe, zoo))

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
    assert world.engine.meter.tokens == int(mask.sum())


def gap(batch):
    away = (batch["old_log_probs"] - batch["sampler_log_probs"]).abs()
    return (away * batch["response_mask"]).max().item()


@pytest.mark.parametrize(
    "more", [[], ["model.lora.rank=2", "model.lora.alpha=8"]], ids=["", "lora"]
)
def test_the_engine_is_made_once_and_handed_the_weights_of_now(make, more):
    build, engines = make
    world = build(*more)
    first = roll(world)
    before = world.policy.log_probs(first)
    trained = [p for p in world.policy.model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=0.5, fused=True)
    for p in trained:
        p.grad = torch.randn_like(p)
    optimizer.step()
    assert (before - world.policy.log_probs(first)).abs().max() > 0.2, "nothing has changed"
    assert gap(roll(world, 1)) < 0.1  # the engine's rounding
    assert len(engines) == 1
    assert engines[0].handed == 2
    roll(build(*more))  # another run of the process: the same engine, other weights
    assert len(engines) == 1
    assert engines[0].handed == 3
    roll(build(*more, "sampler.eager=true"))
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


def test_the_engine_computes_as_the_policy_does_unless_told(make):
    build, engines = make
    roll(build())
    assert engines[0].settings["dtype"] == "float32"
    roll(build("sampler.dtype=bfloat16"))
    assert engines[1].settings["dtype"] == "bfloat16"


def test_rows_longer_than_the_engine_takes_are_one_line(make, golden):
    build, _ = make
    with golden.refuses(RlzooError):
        roll(build("sampler.max_length=8"))


@pytest.mark.parametrize(
    "raised",
    [
        "1 validation error for ModelConfig\n  Value error, Model architectures ['X'] are not "
         "supported for now. Supported architectures: dict_keys(['A']) [type=value_error, input",
        "To serve at least one request, 9 GiB KV cache is needed, larger than 1 GiB.",
        "",
    ],
)  # fmt: skip
def test_an_engine_that_does_not_start_is_one_line(make, raised, golden, monkeypatch):
    def refuse(**_):
        raise ValueError(raised)

    build, _ = make
    monkeypatch.setattr(sys.modules["vllm"], "LLM", refuse)
    with golden.refuses(RlzooError) as caught:
        roll(build())
    assert str(caught.error).startswith("sampler vllm: the engine did not start: ")


def test_several_processes_are_sent_to_a_server(make, monkeypatch, golden):
    build, _ = make
    world = build()
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 2)
    with golden.refuses(RlzooError):
        roll(world)


def test_without_vllm_it_says_so(zoo, words, make, monkeypatch, golden):
    monkeypatch.setattr("rlzoo_zoo.packages.find_spec", lambda name: None)
    recipe = compose(["recipe=grpo", *words, "sampler=vllm"], zoo)
    with golden.refuses(RecipeError):
        make_plan(recipe, zoo)
