import resource
from pathlib import Path
from typing import Any

import torch

from rlzoo.lm.world import World
from rlzoo.mdp.batch import Batch
from rlzoo.parallel.shard import whole_tensors
from rlzoo.recipe.plan import Plan
from rlzoo.rollout.advantages import KLController
from rlzoo.rollout.evaluation import headline
from rlzoo.runs.disk import write_json
from rlzoo.runs.folder import RunFolder
from rlzoo.train import checkpoint, stopping


def summarise(
    plan: Plan,
    world: World,
    evaluations: list[dict],
    step: int,
    seconds: float,
    skipped: int,
    stopped: str | None,
) -> dict[str, Any]:
    config = plan.recipe.config
    what, before, *before_interval = headline(evaluations[0])
    _, after, *after_interval = headline(evaluations[-1])
    best = stopping.best(evaluations)
    _, highest, *highest_interval = headline(best)
    return {
        "recipe": plan.recipe.name,
        "task": plan.task_name,
        "model": config.model.name or config.model.path,
        "estimator": plan.estimator.name,
        "seed": config.seed,
        "eval_metric": what,
        "eval_samples": config.eval.samples,
        "eval_before": before,
        "eval_before_interval": before_interval,
        "eval_after": after,
        "eval_after_interval": after_interval,
        "eval_best": highest,
        "eval_best_interval": highest_interval,
        "best_step": best["step"],
        "stopped": stopped or "budget",
        "steps": step,
        "tokens": world.tokens,
        "seconds": seconds,
        "skipped_updates": skipped,
        # Linux counts in KiB.
        "peak_rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def whole_weights(world: World) -> dict[str, torch.Tensor] | None:
    """Weights that are spread over ranks, gathered on the first: all ranks are here."""
    if not world.sharded:
        return None
    return whole_tensors(world.policy.model.state_dict(keep_vars=True), keep=world.ranks.first)


def save_model(world: World, place: Path, weights: dict[str, torch.Tensor] | None = None) -> None:
    """The policy as a folder that transformers loads; `weights` where they are not in it."""
    world.policy.model.save_pretrained(place, state_dict=weights)
    world.tokenizer.save_pretrained(place)


def _save(
    folder: RunFolder,
    step: int,
    networks: dict,
    optimizers: dict,
    controller: KLController,
    world: World,
    seconds: float,
    skipped: int,
) -> None:
    first = world.ranks.first
    for name in ("metrics.jsonl", "samples.jsonl") if first else ():
        folder.sync(name)
    # Prompts and noise are functions of (seed, step): the step is the data position and the
    # random state both.
    state = {
        "step": step,
        "tokens": world.tokens,
        "seconds": seconds,
        "kl_coef": controller.coef,
        "skipped": skipped,
        "seed": world.seed,
    }
    keep = world.plan.recipe.config.checkpoint.keep
    checkpoint.save_checkpoint(folder.checkpoints, step, networks, optimizers, state, keep, first)


def _write_samples(folder: RunFolder, batch: Batch, step: int, n: int) -> None:
    # Spread over the batch, so that they are of different prompts.
    for i in range(0, batch.rows, max(1, batch.rows // n)) if n else ():
        folder.append(
            "samples.jsonl",
            {
                "step": step,
                "prompt": batch["prompts"][i],
                "response": batch["responses"][i],
                "answer": batch["answers"][i],
                "score": batch["sequence_scores"][i].item(),
                "truncated": bool(batch["truncated"][i]),
            },
        )


def save_batch(folder: RunFolder, batch: Batch, step: int, keep: int) -> None:
    """`batches/step-N.safetensors` with every tensor, `.json` beside it with the texts."""
    place = folder.path / "batches"
    place.mkdir(exist_ok=True)
    tensors = {n: x.contiguous() for n, x in batch.items() if isinstance(x, torch.Tensor)}
    texts = {n: x for n, x in batch.items() if isinstance(x, list)}
    checkpoint.write_tensors(place / f"step-{step:08d}.safetensors", tensors)
    write_json(place / f"step-{step:08d}.json", texts)
    for old in sorted(place.glob("*.safetensors"))[:-keep]:
        old.unlink()
        old.with_suffix(".json").unlink(missing_ok=True)
