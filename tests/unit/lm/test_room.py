"""Head and passes take what their device has free: few operations, and memory within it."""

import platform
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from bench.common import held_mb
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode

from helpers.pretend_gpu import pretend_gpu
from helpers.worlds import make_world
from rlzoo.accel import head
from rlzoo.accel import passes as memory
from rlzoo.lm.policy import Traits

GIB = 2**30


class Watch(TorchDispatchMode):
    """Operations dispatched, and the most bytes of what they made that were held at a time."""

    def __init__(self):
        super().__init__()
        self.operations, self.peak, self.held = 0, 0, {}

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        out = function(*args, **(kwargs or {}))
        self.operations += 1
        for x in out if isinstance(out, (tuple, list)) else (out,):
            if isinstance(x, torch.Tensor):
                storage = x.untyped_storage()
                self.held[storage._cdata] = StorageWeakRef(storage), storage.nbytes()
        self.held = {k: (ref, n) for k, (ref, n) in self.held.items() if not ref.expired()}
        self.peak = max(self.peak, sum(n for _, n in self.held.values()))
        return out


def scored(rows, vocabulary, *, hidden=4, backward=True, **options):
    """What the head's passes over `rows` positions took: (forward, backward)."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(rows, hidden, generator=generator).requires_grad_(True)
    weight = torch.randn(vocabulary, hidden, generator=generator).requires_grad_(True)
    ids = torch.randint(vocabulary, (rows,), generator=generator)
    with Watch() as forward:
        out = head.log_prob_stats(x, weight, None, ids, **options)
    with Watch() as back:
        if backward:
            out["log_probs"].sum().backward()
    return forward, back, out["log_probs"].detach()


def test_a_device_with_room_takes_a_large_vocabulary_in_few_operations(monkeypatch):
    few, _, slowly = scored(64, 151_936, want=("entropy",), backward=False)
    assert few.operations > 100  # blocks for a CPU's cache
    monkeypatch.setattr(memory, "CPU", memory.room("cuda", 64 * GIB))
    forward, back, at_once = scored(64, 151_936, want=("entropy",))
    assert forward.operations <= 40
    assert back.operations <= 40
    torch.testing.assert_close(at_once, slowly, atol=1e-5, rtol=0)


@pytest.mark.parametrize("logits", [20_000, 80_000])
@pytest.mark.parametrize("entropy_grad", [False, True])
def test_memory_is_bounded_by_the_block_and_not_by_the_rows(logits, entropy_grad, monkeypatch):
    monkeypatch.setattr(memory, "CPU", replace(memory.CPU, logits=logits, block=logits))
    options = {"want": ("entropy",), "entropy_grad": entropy_grad}
    for rows in (256, 1024):
        forward, back, _ = scored(rows, 1000, **options)
        few = 4 * (1000 * 4 + rows * 16)  # gradients, and columns of the rows
        assert 4 * logits < forward.peak <= 3.1 * 4 * logits + few
        # In place; a gradient of the entropy needs p beside it. No two chunks at a time.
        assert back.peak <= (2.2 if entropy_grad else 1.2) * 4 * logits + few


def test_a_device_gives_shares_of_what_it_has_free():
    assert memory.room("cpu", 0) == memory.CPU
    for free in (2 * GIB, 64 * GIB):
        room = memory.room("cuda", free)
        assert room.activations + 4.2 * 4 * room.logits < 0.8 * free
        assert room.block == room.logits


def test_a_little_more_that_is_free_moves_no_size():
    sizes = [memory.room("cuda", free) for free in (50 * GIB, 52 * GIB, 60 * GIB, 64 * GIB)]
    assert sizes[0] == sizes[1] == sizes[2] == memory.room("cuda", 48 * GIB)
    assert sizes[3].activations == 32 * GIB
    assert memory.room("cuda", 0).activations == 0


def test_passes_grow_with_the_memory_that_is_free(zoo, model_dir):
    world = make_world(zoo, model_dir)
    policy, passes = replace(world.policy, traits=Traits()), world.engine.passes
    columns = {"prompt_mask": torch.ones(4000, 1), "response_attention": torch.ones(4000, 999)}
    with pretend_gpu() as gpu:
        sizes = []
        policy.model.to("cuda")
        for free in (GIB, 8 * GIB):
            gpu.memory = free, 80 * GIB
            assert memory.free_bytes(policy.device) == free
            sizes.append(len(passes.parts(policy, columns, grad=True)[0]))
        assert sizes[1] < 4000
        assert 7.9 < sizes[1] / sizes[0] < 8.1


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="glibc holds what was freed")
def test_what_was_freed_is_given_back_before_a_large_tensor_only():
    def sized(size):
        return SimpleNamespace(device=torch.device("cpu"), nbytes=size)

    held = [torch.ones(25_000) for _ in range(1000)]  # 100 MB, from the heap
    held = held[::10]
    before = held_mb()
    memory.make_room(sized(memory.MAPPED - 1))
    assert held_mb() > before - 10
    memory.make_room(sized(memory.MAPPED))
    assert held_mb() < before - 50
    assert all(bool(x.all()) for x in held)
