"""Decoding with a cache of a fixed shape: the tokens and log-probs of one that grows, by steps that
ask the host for nothing. It is how a GPU samples; no part of it needs one to be held."""

import itertools
from contextlib import nullcontext
from dataclasses import replace

import pytest
import torch

from helpers.architectures import TOKENIZER, ragged
from helpers.grids import grid
from helpers.launches import Launches
from helpers.worlds import rolled
from invariants.architecture_table.configs import ARCHITECTURES, config_of
from rlzoo.accel.decode import Decoding
from rlzoo.accel.passes import Traits
from rlzoo.lm import probe
from rlzoo.lm.loading import UNWANTED
from rlzoo.lm.policy import Policy
from rlzoo.mdp.batch import left_pad

TEN = ["gpt2", "llama", "qwen2", "mistral", "gemma2", "gemma3", "phi3", "gpt_oss", "qwen3_moe"]
TEN += ["deepseek_v3"]
# What a fixed shape does not serve: states beside keys and values, alibi, chunks.
GROWS = {
    *("gpt_neo", "openai-gpt", "bloom", "falcon-alibi", "deepseek_v32", "llama4_text"),
    *("mamba", "mamba2", "falcon_mamba", "rwkv", "rwkv-rescaled", "recurrent_gemma", "falcon_h1"),
    *("jamba", "bamba", "granitemoehybrid", "nemotron_h", "zamba2", "zaya", "lfm2", "minimax"),
    *("qwen3_next", "qwen3_5_text", "olmo_hybrid", "kimi_linear", "qwen3_5-with_vision"),
}
# Served, but by steps that no graph can record: their shapes or branches are values.
VALUES = {"falcon", "falcon-new", "mpt", "xglm", "llama-dynamic_rope", "dbrx", "longcat_flash"}
VALUES |= {"gemma3-with_vision", "jetmoe"}
NEW = 40  # tokens, more than any window, and more than two looks


def policy_of(name):
    """A random policy of an architecture. Smaller weights than elsewhere: rounding is not the
    question here."""
    from transformers import AutoModelForCausalLM

    config = config_of(name)
    text = config.get_text_config()
    text.initializer_range = 0.2
    for key in [key for key in UNWANTED if hasattr(text, key)]:
        setattr(text, key, UNWANTED[key])
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return Policy.of(AutoModelForCausalLM.from_config(config).eval(), TOKENIZER)


def sampled(policy, *, static, new=NEW, greedy=False, rows=20):
    """Ragged prompts in groups of four."""
    prompts = ragged(rows, prompt=(1, 12), each=4, seed=5)[0]
    ids, mask = left_pad(prompts, policy.pad_id, policy.device)
    u = torch.rand(rows, new, generator=torch.manual_seed(1), dtype=torch.float64)
    policy.decoder.static = static
    return policy.generate(ids, mask, None if greedy else u, new)


@pytest.fixture
def steps(monkeypatch):
    """Of each step of decoding: (rows and columns there is room for, its Launches; None after the
    second of such a shape)."""
    seen, plain = [], Decoding.step

    def counted(self):
        shape = tuple(self.cache.seen.shape)
        launches = Launches() if [s for s, _ in seen].count(shape) < 2 else None
        with launches or nullcontext():
            plain(self)
        seen.append((shape, launches))

    monkeypatch.setattr(Decoding, "step", counted)
    return seen


def hold_to_be_alike(found, want, near=1e-5):
    assert torch.equal(found["response_ids"], want["response_ids"])
    for name in ("sampler_log_probs", "old_log_probs"):
        torch.testing.assert_close(found[name], want[name], atol=near, rtol=0)


def hold_to_be_recordable(steps):
    """What a graph needs: nothing waits, and no step of a shape differs from the first."""
    counted = [(shape, launches) for shape, launches in steps if launches]
    assert all(not launches.waits for _, launches in counted)
    for bucket in {shape for shape, _ in counted}:
        first, *rest = [launches.shapes for shape, launches in counted if shape == bucket]
        assert all(shapes == first for shapes in rest)


@pytest.mark.parametrize("name", grid(TEN, always=("llama", "gemma2", "qwen3_moe").__contains__))
def test_a_fixed_shape_gives_the_tokens_of_a_cache_that_grows(name, steps):
    policy = replace(policy_of(name), eos_ids=list(range(1, 9)), stops=("1", "2+"))
    want = sampled(policy, static=False, new=18, rows=8)
    steps.clear()
    hold_to_be_alike(sampled(policy, static=True, new=18, rows=8), want)
    assert len(set((want["old_log_probs"] != 0).sum(1).tolist())) > 3
    hold_to_be_recordable(steps)


@pytest.mark.study
@pytest.mark.parametrize("name", ARCHITECTURES)
@pytest.mark.filterwarnings("ignore")
def test_an_architecture_is_served_or_known_not_to_be(name, steps):
    policy = policy_of(name)
    with probe.probed(policy) as twin:
        columns = probe._rows(twin)
        found = probe._tried("static cache", lambda: probe._static(twin, columns))
    assert found.passed is (name not in GROWS), found.message
    if name in GROWS or (policy.limit and policy.limit[0] < 36):
        return
    policy = replace(policy, eos_ids=[1, 2, 3])
    want = sampled(policy, static=False, new=24, rows=8)
    steps.clear()
    hold_to_be_alike(sampled(policy, static=True, new=24, rows=8), want, 2e-5)
    if name not in VALUES:
        hold_to_be_recordable(steps)


def test_ten_architectures_are_held():
    assert len(TEN) == 10
    assert not GROWS.intersection(TEN)
    assert GROWS.issubset(ARCHITECTURES)


def test_the_host_looks_at_most_once_in_sixteen_tokens(monkeypatch):
    policy, looks, plain = policy_of("llama"), [], Decoding.look
    policy = replace(policy, eos_ids=[policy.vocabulary])
    monkeypatch.setattr(Decoding, "look", lambda self, n: looks.append(n) or plain(self, n))
    waits = []
    for new in (16, 35):
        looks.clear()
        with Launches() as launches:
            sampled(policy, static=True, new=new, rows=4)
        waits.append(launches.waits)
    assert looks == [16, 32, 35]
    assert waits[0] == waits[1]  # what else waits is of the prompts and of the whole


def test_rows_that_have_ended_leave_in_buckets_and_room_grows_in_some(steps):
    policy = replace(policy_of("llama"), eos_ids=[1, 2, 3], limit=None)
    out = sampled(policy, static=True, new=64, rows=60)
    rows, columns = zip(*dict.fromkeys(shape for shape, _ in steps), strict=True)
    assert rows[0] == 60
    assert len(set(rows)) > 1
    for before, after in itertools.pairwise(rows):
        assert after == before or (after % 8 == 0 and after <= before / 2 + 8)
    assert set(columns) == {64, 128}  # 75 in all
    left = (out["old_log_probs"] != 0).sum(0).tolist()  # that say something at each position
    taken = [shape[0] for shape, _ in steps]
    assert all(n <= there for n, there in zip(left[1:], taken, strict=False))


@pytest.mark.parametrize(
    ("static", "error"),
    [
        (True, torch.OutOfMemoryError("CUDA out of memory")),
        (False, RuntimeError("can't allocate memory")),
    ],
)
def test_memory_that_runs_out_means_fewer_rows_at_a_time(monkeypatch, static, error):
    policy = policy_of("llama")
    want = sampled(policy, static=static, new=8)
    plain, calls = Decoding.step, []

    def short(self):
        calls.append(len(self.live))
        if len(calls) > 3 and len(self.live) > 5:  # in the middle
            raise error
        return plain(self)

    monkeypatch.setattr(Decoding, "step", short)
    for _ in range(2):
        hold_to_be_alike(sampled(policy, static=static, new=8), want)
    assert policy.decoder.notes == [
        "out of memory while sampling; continuing with 5 rows at a time (same tokens)"
    ]
    assert [n for n in calls if n > 5] == [20, 20, 20, 20, 10]
    monkeypatch.setattr(Decoding, "step", lambda self: (_ for _ in ()).throw(error))
    with pytest.raises(type(error), match=str(error)):  # one row alone is too much
        sampled(policy, static=static, new=8)


@pytest.mark.landing
def test_a_run_is_told_once_that_memory_ran_out(make, monkeypatch):
    world, plain = make("llama"), Decoding.step

    def short(self):
        if len(self.live) > 4:
            raise torch.OutOfMemoryError
        return plain(self)

    monkeypatch.setattr(Decoding, "step", short)
    for number in range(2):
        rolled(world, number)
    assert [n for n in world.engine.notes if "4 rows at a time" in n] == world.engine.notes
    assert len(world.engine.notes) == 1


def test_an_error_that_is_not_of_memory_goes_through(monkeypatch):
    policy = policy_of("llama")
    monkeypatch.setattr(Decoding, "step", lambda self: [][1])
    with pytest.raises(IndexError):
        sampled(policy, static=False)
    assert policy.decoder.notes == []


def test_the_key_gives_the_same_batch(make):
    worlds = [make("gemma3", f"rollout.cache={cache}") for cache in ("dynamic", "static")]
    assert [w.policy.decoder.static for w in worlds] == [False, True]
    assert worlds[1].contract["static cache"].startswith("equal to a growing cache")
    hold_to_be_alike(*map(rolled, reversed(worlds)))


def test_a_model_that_it_does_not_serve_samples_as_before_and_says_so_once(make, tmp_path):
    from invariants.architecture_table.checks import write_model

    write_model("bloom", tmp_path)
    world = make(tmp_path, "rollout.cache=static")
    assert not world.policy.decoder.static
    (note,) = [n for n in world.engine.notes if "cache" in n]
    assert note.startswith(f"{tmp_path}: sampling uses a growing cache, because ")
    assert "response_ids" in rolled(world)


def test_the_likeliest_tokens_and_truncated_ones_are_the_same_too():
    policy = policy_of("qwen2")
    for top_k, top_p, greedy in (0, 1.0, True), (5, 0.6, False):
        policy = replace(policy, top_k=top_k, top_p=top_p)
        want = sampled(policy, static=False, greedy=greedy, rows=8)
        hold_to_be_alike(sampled(policy, static=True, greedy=greedy, rows=8), want)


def test_under_autocast_a_token_may_be_of_another_dtype_than_its_prompt():
    policy = replace(policy_of("llama"), autocast=True)
    want, found = (sampled(policy, static=static, new=2, rows=4) for static in (False, True))
    off = (found["old_log_probs"] - want["old_log_probs"]).abs()
    assert off[found["response_ids"] == want["response_ids"]].max() < 0.1


def test_prompts_of_one_length_at_a_time_are_the_same_prompts():
    policy = policy_of("llama")
    want = sampled(policy, static=False, new=4)
    policy = replace(policy, traits=Traits(pads=False))
    for static in (False, True):
        hold_to_be_alike(sampled(policy, static=static, new=4), want)
