"""docs/examples/invariance.py: names what a trainer does wrong, and finds nothing in rlzoo."""

import json
from importlib.util import module_from_spec, spec_from_file_location

import pytest
import torch

from helpers import ROOT

ADAPTER = f"{ROOT / 'tests' / 'reference' / 'invariance' / 'in_rlzoo.py'}:rlzoo"
PASSES = {"passes of 4 rows", "passes of 3 rows, the last of 2", "passes of 1 row",
          "passes of 2 rows, sorted by length", "passes of 2 rows, more padding"}  # fmt: skip
RIGHT = {"more padding on the right"}
TWICE = {"each row twice"}
# A fault of a trainer -> the changes that it shows in.
FAULTS = {
    "": set(),
    "mean of each pass": PASSES,
    "padded width": RIGHT | {"passes of 2 rows, more padding"},
    "sum": TWICE,
    "sum of passes": PASSES,
    "positions count padding": {"more padding on the left", "passes of 2 rows, more padding"},
    "first row weighs more": {"rows reversed", *TWICE, *PASSES},
    "last pass only": PASSES,
    "the batch is ignored": {"without the last two rows"},
}


@pytest.fixture(scope="module")
def kit():
    spec = spec_from_file_location("invariance", ROOT / "docs" / "examples" / "invariance.py")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def trainer(kit, fault):
    """A bag-of-tokens policy whose token mean has a `fault`; gradient(batch, rows)."""
    generator = torch.Generator().manual_seed(0)
    start = [torch.randn(n, 16, generator=generator, dtype=torch.float64) for n in (16, 64)]

    def gradient(batch, rows):
        if fault == "the batch is ignored":
            batch = kit.BATCH
        tokens, places = (w.clone().requires_grad_() for w in start)
        n = len(batch["advantages"])
        total, parts = batch["response_mask"].sum(), torch.arange(n).split(rows or n)
        for part in parts:
            b = kit.taken(batch, part)
            mask, width = b["response_mask"], b["prompt_mask"].shape[1]
            at = torch.arange(mask.shape[1])[None] + b["prompt_mask"].sum(1, keepdim=True)
            if fault == "positions count padding":
                at = (torch.arange(mask.shape[1]) + width)[None].expand_as(mask)
            before = torch.cat([b["prompt_ids"][:, -1:], b["response_ids"][:, :-1]], 1)
            logits = tokens[before] + places[at]
            chosen = logits.log_softmax(-1).gather(2, b["response_ids"][..., None])[..., 0]
            loss = -(chosen * b["advantages"][:, None] * mask)
            if fault == "first row weighs more":
                loss = loss * torch.linspace(2, 1, len(part))[:, None]
            by = {
                "mean of each pass": mask.sum() * len(parts),
                "padded width": mask.numel() * n / len(part),
                "sum": 1,
                "sum of passes": mask.sum(),
            }.get(fault, total)
            if fault == "last pass only":
                tokens.grad = places.grad = None
            (loss.sum() / by).backward()
        return {"tokens": tokens.grad, "places": places.grad}

    return gradient


@pytest.mark.parametrize("fault", FAULTS)
def test_each_fault_is_named_and_nothing_else(kit, fault):
    found = kit.measure(trainer(kit, fault))
    assert set(kit.wrong(found)) == FAULTS[fault]
    if fault == "sum":
        assert kit.as_text(found["each row twice"]) == "x 2"


def test_a_cut_that_the_trainer_does_not_make_is_not_done(kit):
    plain = trainer(kit, "")

    def even(batch, rows):
        if rows and len(batch["advantages"]) % rows:
            raise NotImplementedError
        return plain(batch, rows)

    found = kit.measure(even)
    assert found["passes of 3 rows, the last of 2"] is None
    assert not kit.wrong(found)


def test_a_gradient_of_zeros_is_refused(kit):
    with pytest.raises(ValueError, match="zero"):
        kit.measure(lambda batch, rows: {"w": torch.zeros(3)})


def test_rlzoo_leaves_the_gradient_alone(kit):
    assert not kit.wrong(kit.measure(kit.load(ADAPTER, ["recipe=grpo", "kl.place=loss"])))


@pytest.mark.landing
def test_two_processes_are_asked_too(kit, tmp_path):
    assert kit.main([ADAPTER, "recipe=grpo", "--json", str(tmp_path / "found.json")]) == 0
    (found,) = json.loads((tmp_path / "found.json").read_text()).values()
    assert found["2 processes, passes of 2 rows"]["same"]
