"""Two runs in two threads: the pass that one makes is no other's affair."""

import threading
from contextlib import nullcontext
from types import SimpleNamespace

import torch

from rlzoo.accel import hf_internals
from rlzoo.accel.passes import Packed


def test_another_thread_is_not_within():
    model = SimpleNamespace(config=SimpleNamespace(_attn_implementation="sdpa"))
    seen = []
    with hf_internals.in_line(model, Packed(torch.zeros(1, 1), torch.zeros(1))):
        assert hf_internals.same() is not nullcontext
        thread = threading.Thread(target=lambda: seen.append(hf_internals.same()))
        thread.start()
        thread.join()
    assert seen == [nullcontext]
    assert hf_internals.same() is nullcontext
