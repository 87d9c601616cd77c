"""TF32 is a setting of the process: each run sets it, so that none inherits another's."""

import torch

from rlzoo.lm import build
from rlzoo.recipe.compose import compose
from rlzoo.recipe.plan import make_plan


def test_it_holds_for_the_run_that_asks_for_it_and_not_for_its_trial(zoo, words, monkeypatch):
    tried, plain = [], build.enforce

    def enforce(*given):
        tried.append(torch.backends.cuda.matmul.allow_tf32)
        return plain(*given)

    monkeypatch.setattr(build, "enforce", enforce)
    before = torch.backends.cuda.matmul.allow_tf32
    try:
        for more, allowed in ((["model.tf32=true"], True), ([], False)):
            build.build_world(make_plan(compose(["recipe=grpo", *words, *more], zoo), zoo))
            assert torch.backends.cuda.matmul.allow_tf32 is allowed
        assert tried == [False, False]
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before
