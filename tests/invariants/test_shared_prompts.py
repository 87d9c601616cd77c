"""Rows that begin alike lie in one line: the same numbers, fewer positions, no masks."""

from dataclasses import replace

import pytest
import torch

from helpers.rewards_for_tests import LETTERS
from helpers.worlds import hold_trait, rolled, unprobed, weights_after
from rlzoo.accel import passes as memory
from rlzoo.accel.passes import align, lengths
from rlzoo.lm.critic import Critic
from rlzoo.lm.policy import Policy

ROWS = ["rollout.prompts=4", "rollout.samples=8"]


def scored(policy, columns, trees, monkeypatch):
    """Log-probs, and their gradient in all weights."""
    hold_trait(monkeypatch, "no_trees", "" if trees else "rows")
    policy.model.zero_grad()
    log_probs = policy.log_probs(columns)
    (log_probs * columns["response_mask"]).sum().backward()
    return log_probs.detach(), [w.grad.clone() for w in policy.model.parameters()]


@pytest.mark.parametrize("extra", [[], ["model.gradient_checkpointing=true"]])
def test_a_line_gives_what_rows_give(make, extra, monkeypatch):
    world = make("llama", *ROWS, *extra, recipe="grpo")
    batch = rolled(world)
    p, n = lengths(batch)
    line = align(batch, trees=True)  # each prompt once, no padding, and less where responses agree
    assert int(n.sum()) < line.ids.shape[1] <= int(p[::8].sum() + n.sum())
    width = line.at.shape[1] - 1
    assert (line.ids[0][line.at[:, 1:]] == batch["response_ids"][:, :width])[
        batch["response_mask"][:, :width] > 0
    ].all()
    log_probs, gradient = scored(world.policy, batch, False, monkeypatch)
    ours, other = scored(world.policy, batch, True, monkeypatch)
    torch.testing.assert_close(ours, log_probs, atol=2e-6, rtol=0)
    for a, b in zip(other, gradient, strict=True):
        torch.testing.assert_close(a, b, atol=2e-5 * float(b.abs().max()), rtol=0)


def test_attention_sees_rows_and_no_mask(make, monkeypatch):
    """Nothing of a line's length squared is made."""
    world = make("llama", *ROWS, recipe="grpo")
    batch = rolled(world)
    seen, plain = [], torch.nn.functional.scaled_dot_product_attention

    def attend(query, key, value, attn_mask=None, **more):
        seen.append((tuple(query.shape[:3:2]), attn_mask, more["is_causal"]))
        return plain(query, key, value, attn_mask=attn_mask, **more)

    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", attend)
    world.policy.log_probs(batch)
    p, n = lengths(batch)
    assert not world.policy.traits.no_trees
    assert set(seen) == {((len(p), int((p + n).max())), None, True)}


@pytest.mark.parametrize("trunk", ["own", "shared"])
def test_passes_that_are_held_are_made_once_and_change_nothing(zoo, words, trunk, monkeypatch):
    """One update per rollout, in several passes: values are read off those of the update."""
    words = [*words, *LETTERS, f"critic.trunk={trunk}", "train.minibatches=1", "kl.place=none"]
    calls = []
    monkeypatch.setattr("rlzoo.lm.build.enforce", unprobed)
    for place in (Critic, Policy):
        name = "predict" if place is Critic else "run"
        plain = getattr(place, name)
        monkeypatch.setattr(place, name, lambda *a, p=plain, n=name: calls.append(n) or p(*a))
    small = {"positions": 1, "activations": 10_000}
    monkeypatch.setattr("rlzoo.accel.passes.room", lambda device: replace(memory.CPU, **small))
    monkeypatch.setattr(Policy, "bytes_of_position", {True: 250, False: 1})

    def after(kept):
        monkeypatch.setattr(memory, "CPU", replace(memory.CPU, kept=kept))
        calls.clear()
        state, _ = weights_after(zoo, words, "ppo_gae")
        return state, len(calls)

    (held, once), (again, twice) = after(2**30), after(0)
    assert twice > once > 2  # several passes, each of them made once
    for name, tensor in held.items():
        torch.testing.assert_close(tensor, again[name], atol=1e-6, rtol=0, msg=name)
