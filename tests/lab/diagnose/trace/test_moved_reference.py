"""A trace takes a reference that moved from the checkpoint."""

import pytest

import rlzoo


@pytest.mark.parametrize(
    ("moves", "same"),
    [
        (["kl.reference=every", "kl.sync_steps=1"], True),  # a copy of the policy by then
        (["kl.reference=ema", "kl.sync_mix=0.01"], False),
    ],
)
def test_the_reference_of_a_trace_is_that_of_its_checkpoint(zoo, words, tmp_path, moves, same):
    words = [*words, *moves, "task=reverse_dense", "actor.lr=0.05", f"run.dir={tmp_path / 'run'}"]
    rlzoo.run("grpo", words, zoo=zoo)
    columns = rlzoo.trace(tmp_path / "run", fresh=True)["columns"]
    pairs = zip(columns["old_log_probs"], columns["ref_log_probs"], strict=True)
    gap = max(abs(ours - theirs) for ours, theirs in pairs)
    assert (gap < 1e-5) == same
