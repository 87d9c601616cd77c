"""The loop. It reads like the algorithm, and knows none by name.

prompts -> sampler -> responses -> scores -> columns somebody needs
        -> KL in the reward -> estimator -> whitening -> epochs of mini-batch updates
"""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch

from rlzoo.lm.build import build_world
from rlzoo.lm.world import World
from rlzoo.mdp.batch import Batch
from rlzoo.parallel.ranks import ALONE, Ranks
from rlzoo.recipe.plan import Plan
from rlzoo.rollout.advantages import KLController, add_advantages, add_rewards, make_controller
from rlzoo.rollout.columns import add_columns
from rlzoo.rollout.evaluation import evaluate
from rlzoo.rollout.sample import collect, draw
from rlzoo.runs.disk import write_json
from rlzoo.runs.folder import RunFolder
from rlzoo.train import checkpoint, stopping
from rlzoo.train.checkpoint import keep_best, mend_best
from rlzoo.train.metrics import batch_metrics, kl_per_response
from rlzoo.train.optimizer import learning_rate, make_optimizer
from rlzoo.train.record import (
    _save,
    _write_samples,
    save_batch,
    save_model,
    summarise,
    whole_weights,
)
from rlzoo.train.update import update


def train(plan: Plan, folder: RunFolder, display: Any, ranks: Ranks = ALONE) -> dict[str, Any]:
    """Train to the end of the budget; returns the summary, which is also in summary.json.

    Of several ranks all do the same with the same batch, and the first writes.
    """
    config = plan.recipe.config
    began = time.perf_counter()
    display.start(plan, folder)
    world = build_world(plan, ranks)
    optimizers = {"actor": make_optimizer(world.policy.model.parameters(), config.actor)}
    networks = world.networks()
    if world.critic is not None:
        optimizers["critic"] = make_optimizer(world.critic.parameters(), config.critic)
    controller = make_controller(plan)

    state, troubles = checkpoint.load_checkpoint(folder.checkpoints, networks, optimizers)
    for text in troubles:
        display.note(text)
    step = state["step"] if state else 0
    earlier = state["seconds"] if state else 0.0
    skipped = state["skipped"] if state else 0
    if state:
        world.tokens, controller.coef = state["tokens"], state["kl_coef"]
        display.note(f"resumed at step {step}")
    if ranks.first:
        for name in ("metrics.jsonl", "samples.jsonl"):
            folder.rewind(name, step if state else -1)
        mend_best(folder.path / "best")
    ranks.wait()
    loggers = [bound({"path": folder.path}) for bound in plan.loggers if ranks.first]
    for line in folder.read("metrics.jsonl"):  # loggers start anew: they hear what is kept
        for logger in loggers:
            logger.log(line)

    def seconds() -> float:
        return earlier + time.perf_counter() - began

    def spent() -> float:  # by one clock
        return ranks.same(progress(config.train, step, world.tokens, seconds()))

    def save() -> None:
        _save(folder, step, networks, optimizers, controller, world, seconds(), skipped)

    def record(line: Mapping[str, Any]) -> None:
        if ranks.first:
            folder.append("metrics.jsonl", line)
        for logger in loggers:
            logger.log(dict(line))

    def show_notes() -> None:
        for text in world.notes:
            display.note(text)
        world.notes.clear()

    def run_evaluation() -> None:
        found = {"step": step, **evaluate(world, config.eval.samples)}
        record(found)
        display.evaluation(found)
        evaluations.append(found)
        if config.checkpoint.best and stopping.best(evaluations) is found:
            weights = whole_weights(world)
            if ranks.first:
                keep_best(folder.path / "best", found, lambda at: save_model(world, at, weights))

    lines = folder.read("metrics.jsonl")
    evaluations = [line for line in lines if "eval/score" in line]
    last = next((line for line in reversed(lines) if "reward/mean" in line), None)
    show_notes()
    if not evaluations:
        run_evaluation()
    while not stopping.reason(config.stop, evaluations, last):
        share = spent()
        if share >= 1:
            break
        for name, optimizer in optimizers.items():
            for group in optimizer.param_groups:
                group["lr"] = learning_rate(config[name], step, share)
        batch, metrics = training_step(world, optimizers, controller, step)
        step += 1
        skipped += int(metrics["train/skipped"])
        last = {"step": step, **metrics, "perf/tokens": world.tokens, "perf/seconds": seconds()}
        record(last)
        if ranks.first:
            _write_samples(folder, batch, step, config.run.samples)
        if ranks.first and config.run.save_batches:
            save_batch(folder, batch, step, config.run.save_batches)
        display.step(last, progress(config.train, step, world.tokens, seconds()))
        show_notes()
        if metrics["train/skipped"]:
            display.note(f"step {step}: loss or gradient not finite; that update was skipped")
        if config.eval.every and step % config.eval.every == 0:
            run_evaluation()
        if config.checkpoint.every and step % config.checkpoint.every == 0:
            save()

    if evaluations[-1]["step"] != step:
        run_evaluation()
    stopped = stopping.reason(config.stop, evaluations, last)
    if stopped:
        display.note(f"stopped at step {step}: {stopped}")
    save()
    for logger in loggers:
        logger.close()
    summary = summarise(plan, world, evaluations, step, seconds(), skipped, stopped)
    weights = whole_weights(world)
    if ranks.first:
        save_model(world, folder.path / "model", weights)
        write_json(folder.path / "summary.json", summary)
    display.finish(summary, folder)
    return summary


def training_step(
    world: World,
    optimizers: Mapping[str, torch.optim.Optimizer],
    controller: KLController,
    step: int,
) -> tuple[Batch, dict[str, float]]:
    """One rollout and the updates from it. Step counts from 0; all randomness follows from it."""
    plan, config = world.plan, world.plan.recipe.config
    timing: dict[str, float] = {}
    before = world.tokens
    tokens: dict[str, int] = {}
    with timed(timing, "gen"):
        prompts = draw(world, "train", config.rollout.prompts, "train", step)
        batch = collect(world, prompts, config.rollout.samples, stream="train", step=step)
    tokens["gen"] = world.tokens - before
    with timed(timing, "columns"):
        add_columns(world, batch, stream="train", step=step)
    tokens["columns"] = world.tokens - before - tokens["gen"]
    with timed(timing, "adv"):
        add_rewards(plan, batch, controller.coef)
        add_advantages(plan, batch)
    with timed(timing, "update"):
        updated = update(world, batch, optimizers, step, controller.coef)
    metrics = {**batch_metrics(plan, batch), **updated, "actor/kl_coef": controller.coef}
    metrics |= {f"{name}/lr": opt.param_groups[0]["lr"] for name, opt in optimizers.items()}
    if "ref_log_probs" in batch:
        controller.update(kl_per_response(batch), batch.rows)
    metrics["perf/tokens_per_second"] = sum(tokens.values()) / sum(timing.values())
    metrics |= {f"tokens/{k}": v for k, v in tokens.items()}
    return batch, metrics | {f"timing_s/{k}": v for k, v in timing.items()}


def progress(budget: Any, step: int, tokens: int, seconds: float) -> float:
    """The share of the budget that is spent; the first limit that is reached ends the run."""
    shares = [0.0]
    if budget.steps:
        shares.append(step / budget.steps)
    if budget.tokens:
        shares.append(tokens / budget.tokens)
    if budget.minutes is not None:
        shares.append(seconds / (60 * budget.minutes) if budget.minutes else 1.0)
    return min(1.0, max(shares))


@contextmanager
def timed(timing: dict[str, float], name: str) -> Iterator[None]:
    began = time.perf_counter()
    yield
    timing[name] = time.perf_counter() - began
