"""Makes a `Trace` from a run or a recipe: the same rollout, rewards and estimator as in training,
and one row of the resulting batch."""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from rlzoo.errors import RunError, UsageError
from rlzoo.lm.build import build_policy, build_world, world_around
from rlzoo.lm.world import World
from rlzoo.mdp.batch import Batch
from rlzoo.mdp.rules import draw_examples
from rlzoo.plugin.columns import COLUMNS
from rlzoo.plugin.component import Example
from rlzoo.plugin.registry import Zoo
from rlzoo.recipe.compose import Recipe, compose
from rlzoo.recipe.plan import Plan, make_plan
from rlzoo.rollout.sample import collect, draw
from rlzoo.runs.folder import RunFolder, saved_steps, step_of
from rlzoo.runs.metrics import KL_COEF
from rlzoo.step.columns import add_columns, add_rewards
from rlzoo.train.checkpoint import damage, load_networks
from rlzoo_lab.data.batches import read_batch, saved_batches
from rlzoo_lab.data.variants import together
from rlzoo_lab.diagnose.trace.make import check_row, make_trace
from rlzoo_lab.diagnose.trace.trace import CREDITED, Trace

DRAWN = 1024  # of the task's prompts in which that of the command line is looked for

# `asked` is the command line: prompt, answer, row, step, fresh.


def of_recipe(recipes: Sequence[Recipe], zoo: Zoo, asked: argparse.Namespace) -> Trace:
    """A fresh response of a recipe's base model."""
    plans = [make_plan(recipe, zoo) for recipe in recipes]
    _check_row(plans[0], asked)
    world = build_world(together(plans))
    coef = recipes[0].config.kl.coef if plans[0].kl else 0.0
    model = recipes[0].config.model
    what = f"{recipes[0].name}: {model.name or model.path} on {plans[0].task_name}, untrained"
    traced = _fresh(world, plans, what, asked, step=0, kl_coef=coef)
    if world.engine.critic is not None:
        traced.notes.append("The critic is untrained, so its values are meaningless.")
    return traced


def of_run(
    folder: RunFolder, recipes: Sequence[Recipe], zoo: Zoo, asked: argparse.Namespace
) -> Trace:
    """A response of a run: from its last saved batch, otherwise a new one from its last
    checkpoint."""
    plans = [make_plan(recipe, zoo) for recipe in recipes]
    new = asked.fresh or asked.prompt is not None
    batches = {} if new else {step_of(path): path for path in saved_batches(folder.path)}
    steps = sorted({*batches, *map(step_of, saved_steps(folder.checkpoints))})
    if asked.step is not None and asked.step not in steps:
        saved = f"has steps {', '.join(map(str, steps))}" if steps else "has no checkpoint"
        raise UsageError(f"--step {asked.step}: is not saved; {folder.path} {saved}")
    if batches and (asked.step is None or asked.step in batches):
        return _saved(folder, batches[asked.step or max(batches)], plans, zoo, asked.row)
    _check_row(plans[0], asked)
    world = build_world(together(plans))
    state, notes = _load(folder, asked.step, world)
    coef = state.get("kl_coef", recipes[0].config.kl.coef if plans[0].kl else 0.0)
    at = state.get("step", 0)
    what = f"{folder.path}, checkpoint of step {at}, a new batch"
    read = None if asked.prompt is None else world.prompt_format.text(asked.prompt)
    seen = [  # samples hold what the policy read: with a chat template that is more
        Example(asked.prompt, r.get("answer"))
        for r in folder.lines("samples.jsonl")
        if r.get("prompt") == read
    ]
    traced = _fresh(world, plans, what, asked, step=at, kl_coef=coef, seen=seen[:1])
    traced.notes += notes
    return traced


def _check_row(plan: Plan, asked: argparse.Namespace) -> None:
    """Refuse a row that a new batch will not have, before a model is loaded."""
    rollout = plan.recipe.config.rollout
    if asked.prompt is None:
        check_row(asked.row, rollout.prompts * rollout.samples)
    elif asked.row >= rollout.samples:
        raise UsageError(
            f"--row {asked.row}: this prompt has {rollout.samples} responses "
            "(rollout.samples), numbered from 0"
        )


def _load(folder: RunFolder, step: int | None, world: World) -> tuple[dict[str, Any], list[str]]:
    """Load the weights of a checkpoint into the models: its state, and notes."""
    paths = [p for p in saved_steps(folder.checkpoints) if step in (None, step_of(p))]
    notes = []
    for path in reversed(paths):
        fault = damage(path)
        if fault:
            notes.append(f"Checkpoint {path.name} is damaged ({fault}).")
            continue
        networks = world.changing
        for name in [n for n in networks if not (path / f"{n}.safetensors").exists()]:
            del networks[name]
            notes.append(f"The run has no {name}, so this trace uses an untrained one.")
        return load_networks(path, networks), notes
    if paths:
        raise UsageError(f"{folder.checkpoints}: {' '.join(notes)}")
    return {}, [*notes, f"{folder.path} has no checkpoint yet, so this is the base model."]


@torch.no_grad()
def _fresh(
    world: World,
    plans: Sequence[Plan],
    source: str,
    asked: argparse.Namespace,
    *,
    step: int,
    kl_coef: float,
    seen: Sequence[Example] = (),
) -> Trace:
    """A batch as in training, of held-out prompts or with `prompt` as its first, and one row.

    seen: the prompt with its answer, if the run's samples hold it.
    """
    config = world.plan.recipe.config
    drawn = draw(world, "test", config.rollout.prompts, "trace", step)
    scored = True
    if asked.prompt is not None:
        world.prompt_format.encode(asked.prompt)  # raises on a character that has no token
        example, scored = _example(asked, [*seen, *_drawn(world, asked.prompt)], drawn[0].answer)
        drawn = [example, *drawn[1:]]  # the rest of the batch is what advantages are whitened over
    batch = observe(world, drawn, step, kl_coef, stream="trace")
    batch.update(world.engine.scores(batch, world.engine.outputs))
    traced = make_trace(
        source,
        batch,
        plans,
        asked.row,
        kl_coef=kl_coef,
        tokenizer=world.policy.tokenizer,
        scored=scored,
    )
    if not scored:
        traced.notes.append(
            "Not scored: the run's samples do not have this prompt, so its correct answer is "
            "unknown. Set the answer with --answer TEXT."
        )
    return traced


def observe(
    world: World,
    prompts: list[Example],
    step: int,
    kl_coef: float,
    *,
    stream: str,
) -> Batch:
    """A batch to look at, not to learn from: responses to `prompts`, columns up to `rewards`."""
    plan = world.plan
    samples, sampler = plan.recipe.config.rollout.samples, plan.base_sampler
    batch = collect(world, prompts, samples, stream=stream, step=step, sampler=sampler)
    add_columns(world, batch, stream=stream, step=step)
    add_rewards(plan, batch, kl_coef)
    return batch


def _example(asked: argparse.Namespace, seen: Sequence[Example], like: Any) -> tuple[Example, bool]:
    """The prompt with its answer, and whether that is known; otherwise it is `like`, a stand-in."""
    if asked.answer is not None:
        return Example(asked.prompt, _as_answer(asked.answer, like)), True
    return (seen[0], True) if seen else (Example(asked.prompt, like), False)


def _drawn(world: World, prompt: str) -> list[Example]:
    """The prompt as the task draws it, with its answer, if it comes early."""
    task, name, g = world.plan.task, world.plan.task_name, torch.Generator().manual_seed(0)
    drawn = [e for split in ("test", "train") for e in draw_examples(task, name, split, DRAWN, g)]
    return [example for example in drawn if example.prompt == prompt][:1]


def _as_answer(typed: str, like: Any) -> Any:
    """`typed` as the type that the task's own answers have."""
    if isinstance(like, str) or like is None:
        return typed
    try:
        return type(like)(json.loads(typed))
    except (TypeError, ValueError):
        kind = type(like).__name__
        raise UsageError(
            f"--answer: this task's answers are of type {kind}, like {like!r}"
        ) from None


def _saved(folder: RunFolder, path: Path, plans: Sequence[Plan], zoo: Zoo, row: int) -> Trace:
    """A row of a saved batch; ratio and clipping are the final policy's."""
    step, config = step_of(path), plans[0].recipe.config
    columns = read_batch(path)
    check_row(row, len(columns["response_mask"]))
    world = world_around(plans[0], build_policy(config))
    state, notes = _load(folder, None, world)
    device = world.policy.device
    columns = {n: x.to(device) if isinstance(x, torch.Tensor) else x for n, x in columns.items()}
    batch = Batch(columns.pop("response_mask"))
    made = {n: columns.pop(n) for n in CREDITED if n in columns}
    # Those after its step: here they are the final policy's.
    for name in ("log_probs", "entropy", "observation_nll"):
        columns.pop(name, None)
    try:
        for name, value in columns.items():
            if name in COLUMNS or name in zoo.columns:
                batch.add(name, value, None if name in COLUMNS else zoo.columns[name].shape)
    except ValueError as error:
        raise RunError(f"{path} is damaged: {error}") from None
    for plan in plans:
        for need in plan.estimator.needs:
            if need not in batch:
                raise UsageError(
                    f"estimator {plan.estimator.name!r} needs {need!r}, which this run's batches "
                    "do not contain; use --fresh to draw a batch that does"
                )
    batch.update(world.engine.scores(batch, world.engine.outputs))
    # An adaptive coefficient has moved on since.
    lines = [r for r in folder.lines("metrics.jsonl") if r.get("step") == step and KL_COEF in r]
    coef = lines[0][KL_COEF] if lines else config.kl.coef
    plan = make_plan(compose([f"recipe={folder.path / 'recipe.yaml'}"], zoo), zoo)
    at = state.get("step", 0)
    source = f"{folder.path}, saved batch of step {step}"
    traced = make_trace(
        source, batch, plans, row, kl_coef=coef, tokenizer=world.policy.tokenizer, made=(plan, made)
    )
    traced.notes += notes
    traced.notes.append(
        f"ratio: probability under the policy after step {at} divided by that under the policy "
        f"that sampled this response at the start of step {step}."
    )
    return traced
