"""The loop. It reads like the algorithm, and knows none by name.

prompts -> sampler -> responses -> scores -> columns somebody needs
        -> KL in the reward -> estimator -> whitening -> epochs of mini-batch updates
"""

import resource
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch

from rlzoo import checkpoint
from rlzoo.batch import Batch
from rlzoo.estimate import KLController, add_advantages, add_rewards, make_controller
from rlzoo.evaluate import evaluate, headline
from rlzoo.metrics import batch_metrics, kl_per_response
from rlzoo.model import Critic, Policy, load_causal_lm, load_tokenizer, pick_device, resolve_path
from rlzoo.plan import Plan
from rlzoo.rollout import World, add_columns, collect, draw
from rlzoo.runs import RunFolder
from rlzoo.update import learning_rate, make_optimizer, update


def train(plan: Plan, folder: RunFolder, display: Any) -> dict[str, Any]:
    """Train to the end of the budget; returns the summary, which is also in summary.json."""
    config = plan.recipe.config
    began = time.perf_counter()
    display.start(plan, folder)
    world = build_world(plan)
    optimizers = {"actor": make_optimizer(world.policy.model.parameters(), config.actor)}
    networks: dict[str, torch.nn.Module] = {"actor": world.policy.model}
    if world.critic is not None:
        optimizers["critic"] = make_optimizer(world.critic.parameters(), config.critic)
        networks["critic"] = world.critic
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
    for name in ("metrics.jsonl", "samples.jsonl"):
        folder.rewind(name, step if state else -1)
    loggers = [bound({"path": folder.path}) for bound in plan.loggers]
    for line in folder.read("metrics.jsonl"):  # loggers start anew: they hear what is kept
        for logger in loggers:
            logger.log(line)

    def seconds() -> float:
        return earlier + time.perf_counter() - began

    def record(line: Mapping[str, Any]) -> None:
        folder.append("metrics.jsonl", line)
        for logger in loggers:
            logger.log(dict(line))

    def run_evaluation() -> dict[str, Any]:
        found = {"step": step, **evaluate(world, config.eval.samples)}
        record(found)
        display.evaluation(found)
        return found

    if state:
        evaluations = [r for r in folder.read("metrics.jsonl") if "eval/score" in r]
    else:
        evaluations = [run_evaluation()]
    while progress(config.train, step, world.tokens, seconds()) < 1:
        spent = progress(config.train, step, world.tokens, seconds())
        for name, optimizer in optimizers.items():
            for group in optimizer.param_groups:
                group["lr"] = learning_rate(config[name], step, spent)
        batch, metrics = training_step(world, optimizers, controller, step)
        step += 1
        skipped += int(metrics["train/skipped"])
        line = {"step": step, **metrics, "perf/tokens": world.tokens, "perf/seconds": seconds()}
        record(line)
        _write_samples(folder, batch, step, config.run.samples)
        if config.run.save_batches:
            save_batch(folder, batch, step, config.run.save_batches)
        display.step(line, progress(config.train, step, world.tokens, seconds()))
        if metrics["train/skipped"]:
            display.note(f"step {step}: loss or gradient not finite; that update was skipped")
        if config.eval.every and step % config.eval.every == 0:
            evaluations.append(run_evaluation())
        if config.checkpoint.every and step % config.checkpoint.every == 0:
            _save(folder, step, networks, optimizers, controller, world, seconds(), skipped)

    if evaluations[-1]["step"] != step:
        evaluations.append(run_evaluation())
    _save(folder, step, networks, optimizers, controller, world, seconds(), skipped)
    world.policy.model.save_pretrained(folder.path / "model")
    world.tokenizer.save_pretrained(folder.path / "model")
    for logger in loggers:
        logger.close()
    summary = summarise(plan, world, evaluations, step, seconds(), skipped)
    checkpoint.write_json(folder.path / "summary.json", summary)
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


def build_world(plan: Plan) -> World:
    """The models that the plan asks for: nothing that nobody needs."""
    config = plan.recipe.config
    if config.run.threads:
        torch.set_num_threads(config.run.threads)
    torch.manual_seed(config.seed)
    policy = build_policy(config)
    world = World(plan, policy, seed=config.seed)
    if plan.reference:
        world.reference = policy.frozen_copy()
    if plan.critic:
        wide = "value_logits" in plan.needs or "value_support" in plan.needs
        c = config.critic
        support = torch.linspace(c.low, c.high, c.bins) if wide else None
        world.critic = Critic(policy, support, shared=c.trunk == "shared")
    return world


def build_policy(config: Any) -> Policy:
    """The model and tokenizer of a recipe, on its device."""
    folder = resolve_path(config.model.path)
    device = pick_device(config.device)
    tokenizer = load_tokenizer(folder)
    autocast = config.model.autocast == "bfloat16" or (
        config.model.autocast == "auto" and device.type == "cuda"
    )
    r = config.rollout
    return Policy(
        load_causal_lm(folder).to(device),
        tokenizer,
        temperature=r.temperature,
        top_k=r.top_k,
        top_p=r.top_p,
        autocast=autocast,
    )


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


def summarise(
    plan: Plan, world: World, evaluations: list[dict], step: int, seconds: float, skipped: int
) -> dict[str, Any]:
    config = plan.recipe.config
    what, before, *before_interval = headline(evaluations[0])
    _, after, *after_interval = headline(evaluations[-1])
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
        "steps": step,
        "tokens": world.tokens,
        "seconds": seconds,
        "skipped_updates": skipped,
        # Linux counts in KiB.
        "peak_rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


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
    for name in ("metrics.jsonl", "samples.jsonl"):
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
    checkpoint.save_checkpoint(folder.checkpoints, step, networks, optimizers, state, keep)


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
    checkpoint.write_json(place / f"step-{step:08d}.json", texts)
    for old in sorted(place.glob("*.safetensors"))[:-keep]:
        old.unlink()
        old.with_suffix(".json").unlink(missing_ok=True)
