"""Several architectures, small and random, from disk: steps, log-probs and values alike."""

import math

import pytest
import torch

from helpers.architectures import (
    COMMON,
    CONFIGS,
    EACH,
    ENDS,
    FEW,
    NEAR,
    SPECIAL,
    TOKENIZER,
    columns_of,
    ragged,
)
from helpers.grids import grid
from helpers.worlds import changed, rolled, state_of, step
from rlzoo.accel.passes import align
from rlzoo.errors import ModelError
from rlzoo.mdp.batch import take


@pytest.mark.parametrize(
    ("name", "kind"),
    grid(CONFIGS, ["own critic", "shared trunk", "grpo"],
         always=lambda name, kind: name in FEW and (kind == "own critic" or name == "gemma3")),
)  # fmt: skip
def test_a_step_has_finite_metrics_and_moves_the_weights(make, name, kind):
    shared = ["critic.trunk=shared"] if kind == "shared trunk" else []
    world = make(name, *shared, recipe="grpo" if kind == "grpo" else "ppo_gae")
    before = state_of(world)
    _, metrics = step(world)
    assert all(math.isfinite(value) for value in metrics.values())
    assert metrics["train/skipped"] == 0
    assert metrics["actor/grad_norm"] > 0
    after = state_of(world)
    assert all(torch.isfinite(x).all() for x in after.values())
    for network in world.engine.networks:
        assert any(k.startswith(network) and not torch.equal(before[k], after[k]) for k in after)


@EACH
def test_log_probs_are_those_of_the_bare_row_whatever_the_padding(make, bare, name):
    policy = make(name).policy
    prompts, responses, groups = ragged(12, each=3)
    found = []
    for left, right in ((0, 0), (5, 3)):
        columns = columns_of(prompts, responses, left=left, right=right, groups=groups)
        in_line = align(columns, trees=not policy.traits.no_trees).line is not None
        assert in_line == (not policy.traits.no_trees)
        with torch.no_grad():
            found.append(policy.log_prob_stats(columns, want=("entropy",)))
            del columns["group_ids"]  # then each row goes by itself
            found.append(policy.log_prob_stats(columns, want=("entropy",)))
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
    assert not world.policy.traits.plain_head
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
    with pytest.raises(ModelError, match="critic.trunk: shared requires a model whose head is one"):
        make(tmp_path, "critic.trunk=shared")


@EACH
def test_the_others_heads_are_plain(make, name):
    assert make(name).policy.traits.plain_head


def test_a_model_with_a_state_instead_of_a_cache_is_sampled_by_its_own_loop(make, tmp_path):
    from transformers import AutoModelForCausalLM, Lfm2Config

    config = Lfm2Config(**{**COMMON, "num_hidden_layers": 3}, full_attn_idxs=[1], **SPECIAL)
    AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path)
    TOKENIZER.save_pretrained(tmp_path)
    world = make(tmp_path, "rollout.old_log_probs=sampled")
    world = changed(world, eos_ids=ENDS)
    called = []
    plain = world.policy.model.generate
    world.policy.model.generate = lambda **kw: called.append(1) or plain(**kw)
    batch = rolled(world)
    assert called
    again = world.policy.log_probs(batch) * batch["response_mask"]
    torch.testing.assert_close(again, batch["old_log_probs"], **NEAR)


def test_only_models_without_a_window_read_a_prompt_once(make):
    takes = {name for name in CONFIGS if not make(name).policy.traits.no_trees}
    assert takes == {"gpt2", "llama", "gemma"}


@EACH
def test_values_are_read_at_the_same_places_whatever_the_padding(make, name):
    prompts, responses, groups = ragged(12, each=3)
    for trunk in ("own", "shared"):
        critic = make(name, f"critic.trunk={trunk}").engine.critic
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
    found = world.policy.full_kl(columns, world.engine.reference)
    kl, ref_log_probs = found["full_kl"], found["ref_log_probs"]
    mine, theirs = (p.logits(columns)[:, :-1].log_softmax(-1) for p in
                    (world.policy, world.engine.reference))  # fmt: skip
    mask = columns["response_mask"]
    want = (mine.exp() * (mine - theirs)).sum(-1) * mask
    torch.testing.assert_close(kl, want, atol=1e-4, rtol=1e-5)
    assert kl.max() > 0.01
    torch.testing.assert_close(ref_log_probs, world.engine.reference.log_probs(columns), **NEAR)
