"""What a checkpoint says of itself."""

import json

import pytest

from rlzoo.errors import CheckpointError
from rlzoo.train.checkpoint import _read_state


def test_a_state_of_another_step_is_refused(tmp_path):
    state = {"step": 2, "tokens": 1, "seconds": 1.0, "kl_coef": 0.0, "skipped": 0, "memory": {}}
    for step in (2, 3):
        folder = tmp_path / f"step-{step}"
        folder.mkdir()
        (folder / "state.json").write_text(json.dumps(state))
    assert _read_state(tmp_path / "step-2") == state
    with pytest.raises(ValueError, match="another step"):
        _read_state(tmp_path / "step-3")
    del state["memory"]
    (tmp_path / "step-2" / "state.json").write_text(json.dumps(state))
    with pytest.raises(LookupError, match="memory"):
        _read_state(tmp_path / "step-2")
    (tmp_path / "step-2" / "state.json").write_text(json.dumps(state | {"optimizers": {}}))
    with pytest.raises(CheckpointError, match="earlier version"):
        _read_state(tmp_path / "step-2")
