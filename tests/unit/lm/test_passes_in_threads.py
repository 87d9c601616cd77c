"""Two runs in two threads: what a pass lays out is its own thread's affair."""

import threading
from contextlib import nullcontext
from types import SimpleNamespace

import torch
from transformers import masking_utils

from rlzoo.accel import layout


def test_another_thread_is_not_within():
    model = SimpleNamespace(config=SimpleNamespace(_attn_implementation="sdpa"))
    seen = {}

    def other():
        seen["same"] = layout.same()
        packed = torch.tensor([[0, 1, 0, 1]])  # two sequences in a row
        seen["found"] = masking_utils.find_packed_sequence_indices(packed)

    with layout.over(model, SimpleNamespace(line=None)):
        assert layout.same() is not nullcontext
        assert masking_utils.find_packed_sequence_indices(torch.tensor([[0, 1, 0, 1]])) is None
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
    assert seen["same"] is nullcontext
    assert seen["found"].tolist() == [[0, 0, 1, 1]]
    assert layout.same() is nullcontext
