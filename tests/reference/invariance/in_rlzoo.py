"""rlzoo's own update for docs/examples/invariance.py.

python docs/examples/invariance.py tests/reference/invariance/in_rlzoo.py:rlzoo recipe=grpo
"""

import tempfile

import torch

from rlzoo import load_zoo
from rlzoo.lm.build import build_world
from rlzoo.recipe.compose import compose
from rlzoo.recipe.plan import make_plan
from rlzoo.step.update import gradients
from rlzoo_lab.supervised.tiny import build_model, build_tokenizer, save

SMALL = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2,
         "num_attention_heads": 2, "max_position_embeddings": 64}  # fmt: skip


def rlzoo(recipe="grpo", moved=0.0, **words):
    """moved: the largest log-ratio; beyond 0.2, tokens are clipped."""
    zoo = load_zoo()

    def gradient(batch, rows):
        with tempfile.TemporaryDirectory() as folder:
            torch.manual_seed(0)
            save(build_model(SMALL, tokenizer := build_tokenizer()), tokenizer, folder)
            given = [f"recipe={recipe}", f"model.path={folder}", "model.dtype=float64",
                     "device=cpu", f"train.microbatch={rows or len(batch['advantages'])}",
                     *(f"{key}={value}" for key, value in words.items())]  # fmt: skip
            world = build_world(make_plan(compose(given, zoo), zoo))
        mask = batch["response_mask"].double()
        columns = {
            **batch,
            "prompt_mask": batch["prompt_mask"].double(),
            "response_mask": mask,
            "response_attention": mask,
            "advantages": batch["advantages"][:, None] * mask,
        }
        with torch.no_grad():
            columns["old_log_probs"] = world.engine.scores(columns, ["log_probs"])["log_probs"]
        columns["old_log_probs"] += moved * torch.sin(5.0 * batch["response_ids"]) * mask
        columns["ref_log_probs"] = columns["old_log_probs"] - 0.1 * mask
        gradients(world.engine, world.plan, columns, 0.1, ("actor",))
        weights = world.engine.networks["actor"].named_parameters()
        return {name: w.grad for name, w in weights if w.grad is not None}

    gradient.label = "rlzoo"
    return gradient
