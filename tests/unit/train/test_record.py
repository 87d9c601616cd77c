"""Saved batches as they are read again."""

import pytest
import torch
from safetensors.torch import save_file

from rlzoo.errors import RunError
from rlzoo_lab.data.batches import read_batch, saved_batches


def saved(path, step, texts='{"prompts": ["p"]}', **columns):
    place = path / "batches" / f"step-{step:08d}.safetensors"
    place.parent.mkdir(exist_ok=True)
    save_file(columns, place)
    place.with_suffix(".json").write_text(texts)
    return place


def test_a_batch_is_its_tensors_and_its_texts(tmp_path):
    assert saved_batches(tmp_path) == []
    files = [saved(tmp_path, step, response_mask=torch.ones(1, 2)) for step in (2, 123_456_789, 10)]
    assert saved_batches(tmp_path) == [files[0], files[2], files[1]]
    batch = read_batch(files[0])
    assert batch["prompts"] == ["p"]
    assert torch.equal(batch["response_mask"], torch.ones(1, 2))


@pytest.mark.parametrize("fault", ["half", "no mask", "no texts", "not json", "a list"])
def test_a_damaged_one_is_one_line_that_names_it(tmp_path, fault):
    texts = {"not json": "{", "a list": "[1]"}.get(fault, "{}")
    columns = {"values" if fault == "no mask" else "response_mask": torch.ones(1, 2)}
    file = saved(tmp_path, 1, texts, **columns)
    if fault == "half":
        file.write_bytes(file.read_bytes()[:20])
    if fault == "no texts":
        file.with_suffix(".json").unlink()
    with pytest.raises(RunError, match=r"step-00000001.safetensors cannot be read: \S"):
        read_batch(file)
