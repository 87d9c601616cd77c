"""Writes a run's summary, model, samples and batches."""

import json
import resource
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError

from rlzoo.errors import Unfinished, first_line
from rlzoo.lm.world import World
from rlzoo.mdp.batch import Batch
from rlzoo.mdp.rules import token_texts
from rlzoo.rollout.evaluation import headline
from rlzoo.runs.disk import sync, write_json, write_synced
from rlzoo.runs.folder import RunFolder
from rlzoo.runs.metrics import GAIN, GREEDY
from rlzoo.train import checkpoint, stopping

Summary = dict[str, Any]  # what summary.json holds


def summarise(world: World, evaluations: list[dict[str, float]]) -> Summary:
    """The content of summary.json: a run's evaluations and its setting."""
    plan, config = world.plan, world.plan.recipe.config
    what, before, *before_interval = headline(evaluations[0])
    last = evaluations[-1]
    _, after, *after_interval = headline(last)
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
        "eval_prompts": last.get("eval/prompts"),
        "eval_before": before,
        "eval_before_interval": before_interval,
        "eval_after": after,
        "eval_after_interval": after_interval,
        "eval_gain": last.get(GAIN),  # None: nothing to pair it with
        "eval_gain_interval": [last[f"{GAIN}_{end}"] for end in ("low", "high") if GAIN in last],
        "eval_best": highest,
        "eval_best_interval": highest_interval,
        "best_step": best["step"],
        # Runs of before there was a greedy evaluation are resumed, too.
        "eval_greedy_before": evaluations[0].get(GREEDY),
        "eval_greedy_after": last.get(GREEDY),
        "model_contract": world.contract,
        "tokens": world.engine.meter.tokens,
        "threads": torch.get_num_threads(),
        # Linux counts in KiB.
        "peak_rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def save_model(world: World, place: Path) -> None:
    """The policy as a folder that transformers loads, synced. Links there are replaced by files.
    All processes are here, because weights may be spread over them, and the first writes."""
    model, weights = world.policy.model, world.engine.weights()
    if not world.engine.first:
        return
    for path in place.glob("*"):
        if path.is_symlink():
            path.unlink()
        elif path.is_dir() and path.suffix:
            raise Unfinished(f"{place} cannot be written: {path.name} is a folder; remove it")
    try:
        model.save_pretrained(place, state_dict=weights)
    except SafetensorError as error:  # its own error of what is an OSError elsewhere
        raise Unfinished(f"{place} cannot be written: {first_line(error)}") from None
    world.policy.tokenizer.save_pretrained(place)
    for path in [*place.rglob("*"), place]:
        sync(path)


def keep_best(world: World, place: Path, evaluation: Mapping[str, float]) -> None:
    """Replace the folder `place` by the policy and best.json, synced. All processes are here, and
    the first writes."""
    aside, former = (place.with_name(f".{place.name}.{kind}") for kind in ("partial", "former"))
    if world.engine.first:
        mend_best(place)
        shutil.rmtree(aside, ignore_errors=True)
        aside.mkdir()
    save_model(world, aside)
    if not world.engine.first:
        return
    what, value, low, high = headline(evaluation)
    note = {"step": evaluation["step"], "metric": what, "value": value, "interval": [low, high]}
    write_synced(aside / "best.json", (json.dumps(note, indent=1) + "\n").encode())
    sync(aside)
    if place.exists():
        place.rename(former)
    aside.rename(place)
    sync(place.parent)
    shutil.rmtree(former, ignore_errors=True)


def mend_best(place: Path) -> None:
    """A kill between the two renames left the former best under another name."""
    former = place.with_name(f".{place.name}.former")
    if former.exists() and not place.exists():
        former.rename(place)
    shutil.rmtree(former, ignore_errors=True)


def write_samples(folder: RunFolder, batch: Batch, step: int, n: int) -> None:
    batch = batch.cpu()
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


def save_batch(folder: RunFolder, world: World, batch: Batch, step: int, keep: int) -> None:
    """`batches/step-N.safetensors` with every tensor, and `log_probs` and `entropy` after the
    update; `.json` next to it with the texts. All processes are here, and the first writes."""
    after = world.engine.scores(batch, world.engine.outputs)
    if not world.engine.first:
        return
    place = folder.path / "batches"
    place.mkdir(exist_ok=True)
    batch = batch.cpu()
    columns = {**batch, **after}
    tensors = {n: x.contiguous() for n, x in columns.items() if isinstance(x, torch.Tensor)}
    texts: dict[str, Any] = {n: x for n, x in batch.items() if isinstance(x, list)}
    seen = batch["response_ids"][batch["response_attention"].bool()].unique().tolist()
    texts["token_texts"] = token_texts(world.policy.tokenizer, seen)
    checkpoint.write_tensors(place / f"step-{step:08d}.safetensors", tensors)
    write_json(place / f"step-{step:08d}.json", texts)
    for old in sorted(place.glob("*.safetensors"))[:-keep]:
        old.with_suffix(".json").unlink(missing_ok=True)  # first: what is looked for goes last
        old.unlink()
