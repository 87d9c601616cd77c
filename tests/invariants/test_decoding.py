"""The own loop of decoding draws what transformers would, and rows end where they should."""

import gc
import json
import math
import weakref
from dataclasses import replace

import pytest
import torch

from helpers.architectures import CONFIGS, EACH, ENDS, FEW, NEAR, TOKENIZER, save_model
from helpers.grids import grid
from helpers.worlds import changed, rolled, step
from rlzoo.accel.decode import Decoding, by_generation, decode
from rlzoo.errors import ModelError
from rlzoo.mdp.batch import left_pad
from rlzoo.mdp.rules import episode_columns


@pytest.mark.parametrize(
    ("name", "extra"),
    grid(CONFIGS, [(0, 1.0), (5, 1.0), (0, 0.6)],  # top-k and top-p
         always=lambda name, extra: name in FEW and (extra == (0, 1.0) or name == "gemma3")),
)  # fmt: skip
def test_decoding_draws_what_transformers_own_loop_draws(make, name, extra):
    policy = make(name).policy
    policy = replace(policy, eos_ids=ENDS, top_k=extra[0], top_p=extra[1])
    texts = ["1+2=", "17+25=", "1+2=", "a prompt that is longer than others=", "17+25=", "9"]
    texts += [*"ABCDEF"]
    ids, mask = left_pad([TOKENIZER(t)["input_ids"] for t in texts], policy.pad_id, policy.device)
    uniforms = torch.rand(12, 12, generator=torch.Generator().manual_seed(1))
    ends = set()
    for u in (uniforms, None):
        found = []
        for function, more in (
            (decode, [policy.decoder]),
            (by_generation, []),
        ):
            with torch.no_grad():
                out = function(policy, policy.model, *more, ids, mask, u, 12)
            found.append(out | episode_columns(out["response_ids"], policy.eos_ids, 12, 0))
        ours, theirs = found
        chosen = ours["response_mask"]
        assert torch.equal(ours["response_ids"], theirs["response_ids"])
        for key in ("sampler_log_probs", "old_log_probs"):
            gap = torch.where(chosen > 0, ours[key] - theirs[key], 0)
            assert gap.abs().max() <= 1e-5, key
        ends |= set(chosen.sum(1).tolist())
    assert len(ends) > 1


@EACH
def test_what_was_sampled_has_the_log_probs_that_updates_find(make, name):
    world = make(name, "rollout.old_log_probs=sampled", "rollout.temperature=1.3")
    world = changed(world, eos_ids=ENDS)
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
    policy = replace(make("llama").policy, eos_ids=ENDS)
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
    monkeypatch.setattr("rlzoo.accel.decode.plain_cache", lambda *given: False)
    called = []
    plain = policy.model.generate
    monkeypatch.setattr(policy.model, "generate", lambda **kw: called.append(1) or plain(**kw))
    found = policy.generate(ids, mask, uniforms)
    assert called == [1]
    for name, x in want.items():
        torch.testing.assert_close(found[name], x, atol=1e-5, rtol=0)


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
    world = changed(world, eos_ids=[*world.policy.eos_ids, *range(3, 16)])
    batch, metrics = step(world)
    assert all(math.isfinite(value) for value in metrics.values())
    ids, mask = batch["response_ids"], batch["response_mask"]
    assert (ids[mask == 0] == TOKENIZER.eos_token_id).all()
    ends = torch.isin(ids, torch.tensor(world.policy.eos_ids)) & (mask > 0)
    assert (ends.sum(1) <= 1).all()  # padding is no second end


def test_positions_beyond_the_models_are_refused(make):
    with pytest.raises(ModelError, match="=60 leaves 4 of the model's 64 positions for a prompt"):
        make("gpt2", "rollout.max_new_tokens=60")
    world, ids = make("gpt2"), torch.full((1, 6), 5)
    with pytest.raises(ModelError, match="prompts of 6 tokens and 60 new tokens exceed the"):
        world.policy.generate(ids, torch.ones_like(ids), None, 60)


@pytest.mark.parametrize("cache", ["dynamic", "static"])
def test_no_rows_outlive_their_rollout(cache, make, monkeypatch):
    world = make("gpt2", f"rollout.cache={cache}")
    made, plain = [], Decoding.__init__

    def remembered(self, *given):
        plain(self, *given)
        made.append(weakref.ref(self))
        made.extend(weakref.ref(layer) for layer in self.cache.cache.layers)

    monkeypatch.setattr(Decoding, "__init__", remembered)
    gc.collect()
    gc.disable()  # what is left is left to the collector: a cycle
    try:
        for number in range(2):
            rolled(world, number)
        alive = sum(ref() is not None for ref in made)
    finally:
        gc.enable()
    assert made
    assert alive == 0
