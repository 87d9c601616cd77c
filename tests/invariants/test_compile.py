"""Compiled layers do what plain ones do."""

import pytest
import torch

from helpers.architectures import LORA
from helpers.worlds import state_of, step


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


@pytest.mark.landing
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
