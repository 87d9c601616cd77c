"""`python tests/benchmarks/bench gpu`: how much of a device a step uses.

It first measures the device's copy bandwidth and matrix products. Generation reads all weights for
each token, so it is reported as a share of the copy bandwidth. The update and the columns that it
uses are matrix products; together they are reported as MFU: 6 FLOP per token for each trained
weight and 2 for each weight of a reference, divided by the measured peak. Prompts are not counted.
Before any timing, it compares log-probs in float32 on the CPU with those of a run on the device.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import torch

from bench.common import measure, peak_mb, steps_of
from bench.runner import Row
from rlzoo.accel.head import log_prob_stats
from rlzoo.step.trainer import Trainer

# Mean difference of log-probs (nats) that rounding explains, by what the device computes in.
ROUNDING = {"float32": 1e-4, "bfloat16": 0.05}


def synchronize(where: torch.device) -> None:
    if where.type == "cuda":
        torch.cuda.synchronize(where)


def seconds(function: Callable[[], Any], where: torch.device, repeat: int) -> float:
    """The shortest wall time of `repeat` calls, after one untimed call."""
    times = []
    for _ in range(repeat + 1):
        synchronize(where)
        began = time.perf_counter()
        function()
        synchronize(where)
        times.append(time.perf_counter() - began)
    return min(times[1:])


def peak(where: torch.device) -> float:
    """Peak MiB of the tensors on a device, or of this process."""
    return torch.cuda.max_memory_allocated(where) / 2**20 if where.type == "cuda" else peak_mb()


def limits(spec: Mapping[str, Any]) -> Row:
    """Bytes per second of a copy (read and written), and FLOP per second of a square matrix product
    in the dtype of a run's passes."""
    where = torch.device(spec["device"])
    large = where.type == "cuda"
    x = torch.zeros(2**28 if large else 2**22, device=where)
    y = torch.empty_like(x)
    copied = 2 * x.numel() * 4 / seconds(lambda: y.copy_(x), where, 5)
    n, dtype = (8192, torch.bfloat16) if large else (256, torch.float32)
    a = torch.randn(n, n, device=where, dtype=dtype)
    rate = 2 * n**3 / seconds(lambda: a @ a, where, 5)
    name = torch.cuda.get_device_name(where) if large else "CPU"
    return {"copy_gb_s": copied / 1e9, "matmul_tflops": rate / 1e12, "device": name,
            "peak_device_mb": peak(where)}  # fmt: skip


def rows_of(policy: Any, rows: int, tokens: int) -> dict[str, torch.Tensor]:
    """Synthetic rows of 8 prompt tokens and `tokens` response tokens on the policy's device."""
    draw = torch.Generator().manual_seed(0)
    ids = torch.randint(3, policy.vocabulary, (rows, 8 + tokens), generator=draw)
    ids, ones = ids.to(policy.device), torch.ones(rows, 8 + tokens, device=policy.device)
    return {
        "prompt_ids": ids[:, :8],
        "prompt_mask": ones[:, :8],
        "response_ids": ids[:, 8:],
        "response_mask": ones[:, 8:],
        "response_attention": ones[:, 8:],
    }


def values(world: Any, spec: Mapping[str, Any]) -> Row:
    """Compares log-probs in float32 on the CPU with those of a run on the device; an `error` if
    they differ by more than rounding explains."""
    policy = world.policy
    columns = rows_of(policy, 4, spec["tokens"] // 4)
    with torch.no_grad():
        there = policy.log_probs(columns).float().cpu()
        kind = "bfloat16" if policy.halves else "float32"
        policy.model.to("cpu")
        plain = replace(policy, autocast=False)
        here = plain.log_probs({n: x.cpu() for n, x in columns.items()})
    off = (there - here).abs()
    mean = float(off.mean())
    told: Row = {"off_mean": mean, "off_max": float(off.max()), "computes_in": kind}
    if not mean <= ROUNDING[kind]:
        told["error"] = (
            f"log-probs in {kind} are {mean:.2g} nats from the CPU's in float32 on average, but "
            f"rounding explains only {ROUNDING[kind]:g}, so nothing is timed"
        )
    return {**told, "tokens": spec["tokens"]}


def step(world: Any, spec: Mapping[str, Any]) -> Row:
    """A training step phase by phase, with the bandwidth share of generation and the MFU of the
    update."""
    where, policy = world.policy.device, world.policy
    trainer = Trainer(world)

    def clock() -> float:
        synchronize(where)
        return time.perf_counter()

    trainer.clock = clock
    measured = measure(steps_of(trainer), spec, clock)["samples"]
    samples = [{name: s[name] for name in ("tokens", "wall", "phases")} for s in measured]
    typical = sorted(samples, key=lambda s: s["wall"])[len(samples) // 2]
    weights = sum(w.numel() for w in policy.model.parameters())
    # Weights are read once for each token of all rows.
    read = world.plan.recipe.config.rollout.max_new_tokens * weights * (2 if policy.halves else 4)
    trained = weights
    if world.engine.critic is not None and not world.engine.shared:
        trunk = world.engine.critic.trunk
        trained += sum(w.numel() for w in trunk.parameters())
        trained -= trunk.get_input_embeddings().weight.numel()  # looked up
    frozen = weights if world.engine.reference is not None else 0
    work = (6 * trained + 2 * frozen) * typical["tokens"]
    learning = typical["phases"]["columns"] + typical["phases"]["update"]
    return {
        "samples": samples,
        "copy_share": read / typical["phases"]["gen"] / spec["limits"]["copy_gb_s"] / 1e9,
        "mfu": work / learning / spec["limits"]["matmul_tflops"] / 1e12,
        "peak_device_mb": peak(where),
    }


def head(world: Any, spec: Mapping[str, Any]) -> Row:
    """Log-probs and entropy of one long response, and their gradient: with a large vocabulary, the
    logits dominate memory."""
    policy = world.policy
    where = policy.device
    columns = rows_of(policy, 1, spec["tokens"])
    weight = policy.model.get_output_embeddings().weight
    hidden = torch.randn(spec["tokens"], weight.shape[1], device=where).requires_grad_(True)

    def once() -> None:
        with policy.precision():
            found = log_prob_stats(
                hidden, weight, None, columns["response_ids"][0], want=("entropy",), accumulate=True
            )
        found["log_probs"].sum().backward()

    took = seconds(once, where, spec["repeat"])
    work = 6 * weight.numel() * spec["tokens"]
    return {
        "tokens": spec["tokens"],
        "wall_seconds": took,
        "tokens_per_wall_second": spec["tokens"] / took,
        "mfu": work / took / spec["limits"]["matmul_tflops"] / 1e12,
        "peak_device_mb": peak(where),
    }


CASES = {f.__name__: f for f in (values, step, head)}
