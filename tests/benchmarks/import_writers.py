"""`rlzoo import` of what the trainers' own code writes: every figure, to the last digit.

    python tests/benchmarks/import_writers.py --source DIR [--out RUNS] [--only NAME]

DIR has checkouts named verl, prime-rl, verifiers, skyrl, slime and miles. From each the code that
writes metrics and rollouts is taken without a change and called on made batches of known numbers:
verl's compute_data_metrics, FileLogger, LocalLogger and _log_rollout_data; prime-rl's episode
metrics, FileMonitor and TokenExporter; SkyRL's ConsoleLogger within a Ray task; slime's and miles'
log lines, their log_rollout_data and save_debug_rollout_data; and the installed wandb, offline. The
output is imported whole. Last run: verl 1dda039, prime-rl 559b447, verifiers a60a606, SkyRL
a956457, slime 624b824, miles 31f1ca9, wandb 0.31.0.

Needs orjson, loguru, ray, wandb, beartype, jaxtyping and verifiers' dependencies next to rlzoo;
trainers, vLLM and Megatron are not needed. `right`: figures of the written rows that the run folder
has at their step under the name that docs/bridges.md promises, and samples that it has whole.
"""

import argparse
import ast
import asyncio
import contextlib
import importlib
import io
import json
import logging
import math
import shutil
import sys
import types
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).parents[2]), str(Path(__file__).parents[2] / "plugins")]

ROOT = Path(__file__).parents[2]
PROMPTS, GROUP, STEPS = 3, 4, 3
Rows = list[tuple[int, dict[str, float]]]


@dataclass
class Wrote:
    """The input of a trainer's writer. rows: (step by rlzoo's count, metrics), texts: (step,
    prompt, response, score) of the training rollouts."""

    rows: Rows = field(default_factory=list)
    texts: list[tuple[int, str, str, float]] = field(default_factory=list)
    held_out: list[float] = field(default_factory=list)  # what eval/score must be
    digits: int | None = None  # decimals that the writer prints


def picked(path: Path, names: str, **given: Any) -> dict[str, Any]:
    """Functions and classes of a file by name (those within classes too), run
    without the file's imports; decorators are left off."""
    space: dict[str, Any] = {"Any": Any, **given}
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name in names.split():
            node.decorator_list = [] if isinstance(node, ast.FunctionDef) else node.decorator_list
            module = ast.Module([ast.parse("from __future__ import annotations").body[0], node], [])
            exec(compile(ast.fix_missing_locations(module), str(path), "exec"), space)
    if lacks := [n for n in names.split() if n not in space]:
        raise LookupError(f"{path}: no {lacks[0]}")
    return space


def batch(step: int) -> list[dict[str, Any]]:
    """Made responses: known texts, lengths, rewards and log-probs, other ones in each step."""
    out = []
    for i in range(PROMPTS * GROUP):
        prompt, n = i // GROUP, 1 + (i * 7 + step) % 5
        ids = [4 + (i + 3 * t + step) % 60 for t in range(n)]
        out.append({
            "prompt": f"{prompt + step}+{prompt}=", "ids": ids, "group": prompt, "index": i,
            "reward": ((i * 5 + step) % 4) / 3, "cut": i % 5 == 0,
            "logps": [-(0.1 + ((i + t * step) % 9) / 7) for t in range(n)],
        })  # fmt: skip
    return out


# ---------------------------------------------------------------- verl


class VerlBatch:
    """The parts of verl's DataProto that its writers read."""

    def __init__(self, tensors: dict[str, Any], n: int):
        self.batch, self.non_tensor_batch, self.meta_info = tensors, dict[str, Any](), {}
        answer = {"reward_model": {"ground_truth": "42"}}
        self.items = [types.SimpleNamespace(non_tensor_batch=answer)] * n

    def __iter__(self) -> Any:
        return iter(self.items)


def verl(source: Path, out: Path, *, console: bool = False) -> Wrote:
    import torch
    from transformers import AutoTokenizer

    tracking = module(source / "verl" / "utils" / "tracking.py", "verl_tracking")
    logger = module(source / "verl" / "utils" / "logger" / "aggregate_logger.py", "verl_logger")
    metrics = picked(source / "verl" / "trainer" / "ppo" / "metric_utils.py",
                     "_compute_response_info compute_data_metrics", torch=torch,
                     verl_F=picked(source / "verl" / "utils" / "torch_functional.py",
                                   "masked_mean masked_var", torch=torch))  # fmt: skip
    writer = picked(source / "verl" / "trainer" / "ppo" / "ray_trainer.py",
                    "_write_generations _log_rollout_data", json=json,
                    os=importlib.import_module("os"),
                    marked_timer=lambda *a, **k: contextlib.nullcontext())  # fmt: skip
    tokenizer = AutoTokenizer.from_pretrained(ROOT / "configs" / "model" / "nano")
    out.mkdir(parents=True)
    printed, wrote = io.StringIO(), Wrote()

    class Trainer:
        global_steps = 0

        def __init__(self) -> None:
            self.tokenizer = tokenizer

        def _dump_generations(self, **given: Any) -> None:
            writer["_write_generations"](**given, global_steps=self.global_steps)

    trainer = Trainer()
    import os

    os.environ["VERL_FILE_LOGGER_PATH"] = str(out / "metrics.jsonl")
    loggers = [logger.LocalLogger()] if console else [tracking.FileLogger("made", "run")]

    def log(values: dict[str, Any], step: int) -> None:
        with contextlib.redirect_stdout(printed):
            for each in loggers:
                each.log(values, step)
        wrote.rows.append((step, {k: float(v) for k, v in values.items()}))

    wrote.held_out = [1 / 3, 2 / 3]
    log({"val-core/sums/reward/mean@1": 1 / 3, "val-aux/sums/reward/std@4": 0.25}, 0)
    for step in range(1, STEPS + 1):
        made, trainer.global_steps = batch(step), step
        longest = max(len(row["ids"]) for row in made)
        prompts = [tokenizer(row["prompt"])["input_ids"] for row in made]
        width = max(map(len, prompts))
        tensors = {
            "prompts": torch.tensor([[0] * (width - len(p)) + p for p in prompts]),
            "responses": torch.tensor([r["ids"] + [0] * (longest - len(r["ids"])) for r in made]),
        }
        mask = torch.tensor([[int(t < len(r["ids"])) for t in range(longest)] for r in made])
        scores = torch.zeros(len(made), longest)
        for i, row in enumerate(made):
            scores[i, len(row["ids"]) - 1] = row["reward"]
        draw = torch.Generator().manual_seed(step)
        tensors |= {
            "attention_mask": torch.cat([(tensors["prompts"] != 0).long(), mask], 1),
            "response_mask": mask, "token_level_scores": scores, "token_level_rewards": scores,
            "advantages": torch.randn(scores.shape, generator=draw),
            "returns": torch.rand(scores.shape, generator=draw),
            "values": torch.rand(scores.shape, generator=draw),
        }  # fmt: skip

        given = VerlBatch(tensors, len(made))
        values = {**metrics["compute_data_metrics"](given, use_critic=True), "actor/lr": 1e-6 / 3,
                  "actor/pg_loss": -1 / 7, "actor/entropy": 0.1 * step,
                  "training/global_step": step, "actor/grad_norm": 1 / 9}  # fmt: skip
        if step == STEPS:
            values["val-core/sums/reward/mean@1"] = 2 / 3
        log(values, step)
        extra = {"acc": [row["reward"] == 1 for row in made]}
        with contextlib.redirect_stdout(printed):
            writer["_log_rollout_data"](trainer, given, extra, {}, str(out / "rollouts"))
            if step == STEPS:  # what trainer.validation_data_dir gets: see _validate
                trainer._dump_generations(
                    inputs=["9+9="], outputs=["18"], gts=["18"], scores=[1.0],
                    reward_extra_infos_dict={"reward": [1.0]}, dump_path=str(out / "validation"),
                )  # fmt: skip
        texts = [tokenizer.decode(row["ids"], skip_special_tokens=True) for row in made]
        sums = scores.sum(-1).tolist()
        wrote.texts += [
            (step, r["prompt"], t, s) for r, t, s in zip(made, texts, sums, strict=True)
        ]
    if console:
        (out / "train.log").write_text(printed.getvalue())
    return wrote


# ---------------------------------------------------------------- prime-rl


def prime_rl(source: Path, out: Path) -> Wrote:
    import torch
    import verifiers.v1 as vf

    package = types.ModuleType("prime_rl.monitors")  # without its __init__: other monitors
    package.__path__ = [str(source / "src" / "prime_rl" / "monitors")]
    sys.modules[package.__name__] = package
    from prime_rl.configs.monitors import FileMonitorConfig
    from prime_rl.configs.trainer import DefaultLossConfig
    from prime_rl.monitors.file import FileMonitor
    from prime_rl.orchestrator.metrics import EvalEpisodes, TrainEpisodes
    from prime_rl.trainer.rl.token_export import TokenExporter

    def episode(row: dict[str, Any], step: int, text: str, kind: str = "train") -> Any:
        work = {"type": kind, "step": step, "policy": {"start": step - 1, "end": step - 1}}
        credit = row["reward"] - 0.5
        return vf.Episode[vf.WireTaskData, vf.State, Any].model_validate({
            "env": {"id": "sums", "name": "sums"}, "ok": True,
            "task": {"type": "Sum", "data": {"prompt": row["prompt"], "answer": "42"}},
            "group": {"id": f"{step}-{row['group']}"},
            "run": {"type": "train", "id": "run", "work": work},
            "traces": [{
                "task": {"type": "Sum", "data": {"prompt": row["prompt"], "answer": "42"}},
                "agent": {"config": {}, "name": "agent"}, "ok": True, "is_completed": True,
                "stop_condition": "agent_completed",
                "rewards": {"right": {"score": row["reward"], "weight": 1.0},
                            "form": {"score": 0.5, "weight": 0.25}},
                "nodes": [
                    {"message": {"role": "user", "content": row["prompt"]}, "token_ids": [1, 2],
                     "mask": [False, False]},
                    {"message": {"role": "assistant", "content": text}, "sampled": True,
                     "parent": 0, "token_ids": row["ids"], "mask": [True] * len(row["ids"]),
                     "logprobs": row["logps"], "advantages": [credit] * len(row["ids"])},
                ],
            }],
        })  # fmt: skip

    async def write() -> Wrote:
        wrote, monitors = Wrote(), {}
        for part in ("trainer", "orchestrator"):
            monitors[part] = FileMonitor(FileMonitorConfig())
            (out / part).mkdir(parents=True)
            await monitors[part].init(out / part)

        async def log(part: str, values: dict[str, Any], step: int) -> None:
            await monitors[part].log({**values, "step": step}, step=step)
            wrote.rows.append((step, {k: float(v) for k, v in values.items() if v == v}))

        exporter = TokenExporter(out / "trainer", 0)
        tested = [episode(r, 0, "18", "eval") for r in batch(9)]
        scored = EvalEpisodes(tested, GROUP)
        wrote.held_out = [sum(t.reward for e in tested for t in e.traces) / len(tested)]
        await monitors["orchestrator"].log(tested, 0, "eval", "effective")
        await log("orchestrator", {**scored.metrics.to_wandb(prefix="eval/sums", subset="all"),
                                   **scored.effective.metrics.to_wandb(
                                       prefix="eval/sums", subset="effective"),
                                   "eval/sums/policy_version": 0.0}, 0)  # fmt: skip
        for step in range(1, STEPS + 1):
            made = batch(step)
            texts = [f"text {r['index']} of {step}" for r in made]
            episodes = [episode(r, step, t) for r, t in zip(made, texts, strict=True)]
            pool = TrainEpisodes(episodes, {t.id for e in episodes for t in e.traces},
                                 {e.id for e in episodes})  # fmt: skip
            for one in episodes:
                await monitors["orchestrator"].log([one], step, "train", "all")
            await monitors["orchestrator"].log(episodes, step, "train", "effective")
            values = {}
            for subset, part in (("all", pool), ("effective", pool.effective)):
                values |= part.metrics.to_wandb(prefix="train/agg", subset=subset)
            await log(
                "orchestrator", {**values, "progress/tokens": 7, "off_policy/mean": 0.5}, step
            )
            await log("trainer", {"optim/lr": 1e-6 / 3, "optim/grad_norm": 1 / 9}, step)
            await log("trainer", {"loss/mean": -1 / 7, "entropy/all/mean": 0.1 * step,
                                  "mismatch_kl/all/mean": math.nan}, step)  # fmt: skip
            ids = [i for r in made for i in (1, 2, *r["ids"])]
            mask = torch.tensor([m for r in made for m in (0, 0, *[1] * len(r["ids"]))]).bool()
            old = torch.tensor([x for r in made for x in (0.0, 0.0, *r["logps"])])
            new = old + 0.125
            if step == 2:
                new[2] = math.nan  # the exporter writes null
            size = (1, len(ids))
            credit = [r["reward"] - 0.5 for r in made for _ in (1, 2, *r["ids"])]
            lengths = [2 + len(r["ids"]) for r in made]
            exporter.export(step, 0, {
                "input_ids": torch.tensor(ids).view(size),
                "position_ids": torch.zeros(size, dtype=torch.long),
                "loss_mask": mask.view(size), "advantages": torch.tensor(credit).view(size),
                "inference_logprobs": old.view(size), "env_names": ["sums"] * len(ids),
            }, {"logprobs": new.view(size), "entropy": torch.ones(size)},
                lengths, DefaultLossConfig())  # fmt: skip
            for row, text in zip(made, texts, strict=True):
                wrote.texts.append((step, row["prompt"], text, row["reward"] + 0.125))
        return wrote

    return asyncio.run(write())


# ---------------------------------------------------------------- SkyRL


def skyrl(source: Path, out: Path) -> Wrote:
    import ray

    out.mkdir(parents=True)
    console = source / "skyrl" / "train" / "utils" / "tracking.py"
    utils = source / "skyrl" / "train" / "utils" / "utils.py"
    rows: Rows = [(0, {"eval/all/avg_score": 1 / 3, "eval/sums/avg_score": 1 / 3,
                       "timing/eval_generate": 1.5})]  # fmt: skip
    for step in range(1, STEPS + 1):
        made = batch(step)
        rewards = [r["reward"] for r in made]
        values = {"reward/avg_raw_reward": sum(rewards) / len(rewards),
                  "reward/avg_pass_at_4": 0.75, "generate/avg_num_tokens": 1 / 0.3,
                  "policy/policy_lr": 3e-4, "policy/policy_entropy": 0.1 * step,
                  "policy/raw_grad_norm": 1 / 9, "trainer/epoch": 0, "trainer/global_step": step,
                  "timing/step": 1.25 * step}  # fmt: skip
        if step == STEPS:
            values |= {"eval/all/avg_score": 2 / 3}
        rows.append((step, values))
    ray.init(num_cpus=1, include_dashboard=False, log_to_driver=True, logging_level="ERROR")
    here = str(Path(__file__).resolve())

    @ray.remote(num_cpus=1)
    def skyrl_entrypoint() -> None:
        import os
        import pprint
        import runpy

        from loguru import logger

        pick = runpy.run_path(here)["picked"]
        space = {"os": os, "sys": sys, "logging": logging, "logger": logger, "pprint": pprint,
                 "Dict": dict}  # fmt: skip
        pick(utils, "configure_ray_worker_logging", **space)["configure_ray_worker_logging"]()
        tracker = pick(console, "ConsoleLogger", **space)["ConsoleLogger"]()
        for step, values in rows:
            logger.info(f"Started: 'step {step}'")
            tracker.log(values, step)
        logger.complete()

    wrote = Wrote(rows, held_out=[0.3333, 0.6667], digits=4)
    with open(out / "train.log", "w") as file, captured(file):
        ray.get(skyrl_entrypoint.remote())
        import time

        time.sleep(3)  # Ray passes a worker's lines on in the background
        ray.shutdown()
    return wrote


@contextlib.contextmanager
def captured(file: Any) -> Any:
    """The process's output streams, Ray's threads and workers included, in a file."""
    import os

    kept = os.dup(1), os.dup(2)
    try:
        for stream in (1, 2):
            os.dup2(file.fileno(), stream)
        yield
    finally:
        for old, stream in zip(kept, (1, 2), strict=True):
            sys.stdout.flush()
            os.dup2(old, stream)


# ---------------------------------------------------------------- slime and miles


def slime(source: Path, out: Path, *, name: str = "slime") -> Wrote:
    import torch

    Sample = importlib.import_module(f"{name}.utils.types").Sample
    if name == "slime":
        metrics = importlib.import_module("slime.observability.rollout_metrics")
        trained = importlib.import_module("slime.observability.train_metric_utils")
        dump = importlib.import_module("slime.observability.rollout_data_utils")
        silent(metrics.logging_utils, "log")
        save = dump.save_debug_rollout_data
    else:
        metrics = importlib.import_module("miles.ray.rollout.metrics")
        trained = None
        dump = importlib.import_module("miles.ray.rollout.debug_data")
        silent(metrics.tracking, "log")

        def save(template: str, data: Any, *, rollout_id: int, evaluation: bool) -> None:
            args = types.SimpleNamespace(save_debug_rollout_data=template,
                                         save_debug_trajectory_data=None)  # fmt: skip
            dump.save_debug_rollout_data(args, data, rollout_id, evaluation)

    out.mkdir(parents=True)
    handler = logging.FileHandler(out / f"{name}.log", mode="w")
    handler.setFormatter(logging.Formatter("[%(asctime)s] %(filename)s:%(lineno)d - %(message)s"))
    root = logging.getLogger()
    root.addHandler(handler)
    root.setLevel(logging.INFO)
    wrote = Wrote()
    args = Args(advantage_estimator="grpo", n_samples_per_prompt=GROUP, rollout_batch_size=PROMPTS,
                n_samples_per_eval_prompt=GROUP, log_passrate=True, rollout_num_gpus=1,
                wandb_always_use_train_step=False)  # fmt: skip

    def samples(number: int) -> list[Any]:
        return [Sample(group_index=r["group"], index=r["index"], prompt=r["prompt"],
                       tokens=[1, 2, *r["ids"]], response=f"text {r['index']} of {number}",
                       response_length=len(r["ids"]), label="42", reward=r["reward"],
                       loss_mask=[int(t != 1) for t in range(len(r["ids"]))],
                       rollout_log_probs=r["logps"],
                       status=Sample.Status.TRUNCATED if r["cut"] else Sample.Status.COMPLETED)
                for r in batch(number)]  # fmt: skip

    model = ast.parse((source / name / "backends" / "megatron_utils" / "model.py").read_text())
    calls = [ast.unparse(node) for node in ast.walk(model) if isinstance(node, ast.Expr)]
    [line] = [call for call in calls if "step {accumulated_step_id}" in call]
    logger = logging.getLogger(f"{name}.made")
    tested = samples(8)
    data = {"sums": {"rewards": [s.reward for s in tested], "samples": tested,
                     "truncated": [s.status == Sample.Status.TRUNCATED for s in tested]},
            }  # fmt: skip
    wrote.held_out = [sum(s.reward for s in tested) / len(tested)]
    template = str(out / "rollout_data" / "{rollout_id}.pt")
    for number in range(STEPS):
        if number == 0:
            got = metrics.log_eval_rollout_data(0, args, data)
            wrote.rows.append((0, {k: float(v) for k, v in got.items() if k != "eval/step"}))
            save(template, data, rollout_id=0, evaluation=True)
        rows = samples(number)
        save(template, rows, rollout_id=number, evaluation=False)
        with Watch(metrics) as watch:
            metrics.log_rollout_data(number, args, rows, {}, 1.5)
        wrote.rows.append((number + 1, watch.values))
        if trained is not None:
            with Watch(trained) as watch:
                megatron(trained, number, args, rows, torch)
            wrote.rows.append((number + 1, watch.values))
        values = {"train/pg_loss": -1 / 7 / (number + 1), "train/grad_norm": 1 / 9,
                  "train/lr-pg_0": 1e-6 / 3, "train/entropy_loss": 0.1,
                  "train/step": number}  # fmt: skip
        exec(line, {"logger": logger, "role_tag": "", "accumulated_step_id": number,
                    "log_dict": values})  # fmt: skip
        wrote.rows.append((number + 1, values))
        wrote.texts += [(number + 1, s.prompt, s.response, s.reward) for s in rows]
    root.removeHandler(handler)
    handler.close()
    return wrote


def megatron(trained: Any, number: int, args: Any, rows: list[Any], torch: Any) -> None:
    """slime's own means of a rollout's fields, with Megatron's parallel state of one process."""
    one_process()
    trained.dist = types.SimpleNamespace(
        get_rank=lambda: 0, gather_object=lambda x, into, dst, group: into.__setitem__(0, x)
    )
    trained.log_rollout_data(number, args, {
        "response_lengths": [s.response_length for s in rows],
        "total_lengths": [len(s.tokens) for s in rows],
        "loss_masks": [torch.tensor(s.loss_mask) for s in rows],
        "global_batch_sizes": [len(rows)], "raw_reward": [s.reward for s in rows],
        "truncated": [int(s.status == type(s).Status.TRUNCATED) for s in rows],
        "log_probs": [torch.tensor(s.rollout_log_probs) for s in rows],
        "advantages": [torch.full((s.response_length,), s.reward - 0.5) for s in rows],
    })  # fmt: skip


def one_process() -> None:
    """Megatron's parallel state of one process, in the place of Megatron."""
    one = types.SimpleNamespace(
        get_tensor_model_parallel_rank=lambda: 0,
        is_pipeline_last_stage=lambda ignore_virtual=False: True,
        get_context_parallel_world_size=lambda: 1, get_context_parallel_rank=lambda: 0,
        get_data_parallel_rank=lambda with_context_parallel=False: 0,
        get_data_parallel_world_size=lambda with_context_parallel=False: 1,
        get_data_parallel_src_rank=lambda with_context_parallel=False: 0,
        get_data_parallel_group_gloo=lambda with_context_parallel=False: None,
    )  # fmt: skip
    core = types.ModuleType("megatron.core")
    core.mpu = one  # type: ignore[attr-defined]
    sys.modules |= {"megatron": types.ModuleType("megatron"), "megatron.core": core}
    utils = types.ModuleType("slime.backends.megatron_utils.cp_utils")

    def get_sum_of_sample_mean(total: Any, lengths: Any, masks: Any, denoms: Any = None) -> Any:
        def reduce(x: Any) -> Any:
            parts = x.split([len(m) for m in masks])
            return sum((p * m).sum() / m.sum() for p, m in zip(parts, masks, strict=True))

        return reduce

    utils.get_sum_of_sample_mean = get_sum_of_sample_mean  # type: ignore[attr-defined]
    utils.all_gather_with_cp = lambda x, total, own: x  # type: ignore[attr-defined]
    sys.modules["slime.backends.megatron_utils.cp_utils"] = utils


class Args(types.SimpleNamespace):
    """A trainer's arguments: those that are not set are None."""

    def __getattr__(self, name: str) -> None:
        return None


class Watch:
    """Collects the dictionaries that a module's logger prints, before they are texts."""

    def __init__(self, place: Any):
        self.place, self.values = place, dict[str, float]()

    def __enter__(self) -> "Watch":
        home = getattr(self.place, "logging_utils", None) or self.place.tracking
        self.home, self.kept = home, home.log

        def log(args: Any, values: dict[str, Any], step_key: str) -> None:
            self.values |= {k: float(v) for k, v in values.items() if k != step_key}

        home.log = log
        return self

    def __exit__(self, *_: Any) -> None:
        self.home.log = self.kept


def silent(place: Any, name: str) -> None:
    setattr(place, name, lambda *a, **k: None)


# ---------------------------------------------------------------- wandb


def wandb_offline(_: Path, out: Path) -> Wrote:
    """The installed wandb's own file of a run without a connection, with TRL's names."""
    import wandb

    out.mkdir(parents=True)
    settings = wandb.Settings(mode="offline", silent=True, x_disable_stats=True)
    config = {"learning_rate": 1e-6 / 3, "num_generations": GROUP, "seed": 3}
    wrote = Wrote(held_out=[2 / 3])
    with wandb.init(project="made", dir=out, config=config, settings=settings) as run:
        for step in range(1, STEPS + 1):
            values = {"train/reward": 0.1 * step, "train/learning_rate": 1e-6 / 3 / step,
                      "train/kl": 1 / 7, "train/odd": 1 / 9}  # fmt: skip
            table = wandb.Table(columns=["prompt"], data=[["1+1="]])
            run.log({**values, "train/global_step": step, "completions": table})
            wrote.rows.append((step, values))
        run.log({"eval/reward": 2 / 3, "train/global_step": STEPS})
    wandb.teardown()
    return wrote


# ---------------------------------------------------------------- import and compare


def module(path: Path, name: str) -> Any:
    """A file as a module of its own, apart from its package."""
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec
    assert spec.loader
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def compare(trainer: str, wrote: Wrote, run: Path) -> tuple[int, list[str]]:
    """(figures and samples that are right, a line for each that is not)."""
    from rlzoo_lab.imports.names import translate

    there: dict[int, dict[str, Any]] = {}
    for line in map(json.loads, (run / "metrics.jsonl").read_text().splitlines()):
        there.setdefault(line["step"], {}).update(line)
    good, wrong = 0, list[str]()
    for step, values in wrote.rows:
        for name, value in values.items():
            written = value if wrote.digits is None or value == int(value) else (
                float(f"{value:.{wrote.digits}f}"))  # fmt: skip
            for part in translate(trainer, {name: written}):
                for ours, expected in part.items():
                    got = there.get(step, {}).get(ours)
                    if got == expected:
                        good += 1
                    elif not name.endswith(("global_step", "train/step")):
                        wrong.append(f"step {step} {name}: wrote {expected!r}, {ours} is {got!r}")
    scores = [line["eval/score"] for _, line in sorted(there.items()) if "eval/score" in line]
    good += scores == wrote.held_out
    wrong += [] if scores == wrote.held_out else [f"eval/score {scores}, not {wrote.held_out}"]
    samples = [json.loads(s) for s in (run / "samples.jsonl").read_text().splitlines()] if (
        wrote.texts) and (run / "samples.jsonl").exists() else []  # fmt: skip
    have = [(s["step"], s["prompt"], s["response"], s.get("score")) for s in samples]
    for text in wrote.texts:
        prompts = [h for h in have if h[0] == text[0] and h[2:] == text[2:] and text[1] in h[1]]
        good += bool(prompts)
        wrong += [] if prompts else [f"sample {text} is missing"]
    if len(have) > len(wrote.texts):
        wrong.append(f"{len(have) - len(wrote.texts)} samples that no rollout of training has")
    return good, wrong


WRITERS: dict[str, tuple[str, str, Callable[..., Wrote], dict[str, Any]]] = {
    "wandb": ("trl", "", wandb_offline, {}),
    "verl": ("verl", "verl", verl, {}),
    "verl, console": ("verl", "verl", verl, {"console": True}),
    "prime-rl": ("prime-rl", "prime-rl", prime_rl, {}),
    "SkyRL": ("skyrl", "skyrl", skyrl, {}),
    "slime": ("slime", "slime", slime, {}),
    "miles": ("slime", "miles", slime, {"name": "miles"}),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--source", type=Path, required=True, help="folder of the checkouts")
    parser.add_argument("--out", type=Path, default=Path("/tmp/import-writers"))
    parser.add_argument("--only", default="")
    asked = parser.parse_args()
    source = asked.source.resolve()
    sys.path[:0] = [str(source / "verifiers"), str(source / "prime-rl" / "src"),
                    str(source / "prime-rl" / "packages" / "prime-rl-configs" / "src"),
                    *(str(source / name) for name in ("slime", "miles", "skyrl"))]  # fmt: skip
    from rlzoo.cli import parser_of
    from rlzoo_lab.imports import command

    bad = 0
    for name, (trainer, folder, write, more) in WRITERS.items():
        if asked.only not in name:
            continue
        place = asked.out / name.replace(", ", "-")
        shutil.rmtree(place, ignore_errors=True)
        wrote = write(source / folder, place / "source", **more)
        words = [str(place / "source"), "--out", str(place / "run")]
        try:
            result = command.run(parser_of("import").parse_args(words))
            got = result.document["from"]
            good, wrong = compare(trainer, wrote, place / "run")
            wrong += [] if got == trainer else [f"taken for {got}"]
        except Exception as error:
            good, wrong = 0, [f"{type(error).__name__}: {error}"]
        bad += len(wrong)
        print(f"{name}: {good} right, {len(wrong)} wrong", *wrong[:12], sep="\n  ", flush=True)
    sys.exit(bool(bad))


if __name__ == "__main__":
    main()
