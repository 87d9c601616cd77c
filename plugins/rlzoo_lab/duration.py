"""An estimate of how long a run takes: floating-point operations divided by a measured rate, plus a
constant for each layer of each pass.

A forward pass takes 2 operations per parameter and token, an update 6. The rate is measured on the
run's device with matrix products of the model's size, or smaller ones for a large model; this takes
a few tenths of a second.
"""

import time
from dataclasses import dataclass
from typing import Any

import torch

from rlzoo.recipe.plan import Plan

ROWS, WIDEST = 512, 2048  # of a product that is measured on a CPU
LONGEST = 0.5  # seconds after which no further product is begun

SHARE = 0.6  # of the rate of matrix products, that a model's passes reach
PER_LAYER = 2e-4  # seconds for a layer of a pass, however small
PER_UPDATE = 6e-3  # seconds for an optimizer step, however small


@dataclass(frozen=True)
class Duration:
    """Seconds of one training step, of one evaluation, and of the whole run (None without
    train.steps); `rate`: operations per second of matrix products, as measured."""

    step: float
    evaluation: float
    total: float | None
    rate: float
    steps: int | None

    def line(self) -> str:
        every = ""
        if self.total is not None:
            every = f", {_text(self.total)} for {self.steps} steps with evaluations"
        return (
            f"time, estimated: {_text(self.step)} per step{every} (matrix products ran at "
            f"{self.rate / 1e9:.0f} GFLOP/s just now). The estimate may be off by a factor of 2 "
            "and does not include slow rewards or tools"
        )


def _text(seconds: float) -> str:
    """Two digits in the largest unit that makes it at least 1."""
    for size, unit in ((86400, "days"), (3600, "h"), (60, "min")):
        if seconds >= 1.5 * size:
            return f"{float(f'{seconds / size:.2g}'):,.10g} {unit}"
    return f"{seconds:.2g} s"


def measured_rate(rows: int, hidden: int, inner: int, device: str, threads: int | None) -> float:
    """Operations per second for a product [rows, hidden] x [hidden, inner]; on a CPU, for at most
    `ROWS` rows and widths of `WIDEST`, beyond which its rate hardly changes."""
    if device == "cpu":
        rows, hidden, inner = min(rows, ROWS), min(hidden, WIDEST), min(inner, WIDEST)
    before = torch.get_num_threads()
    torch.set_num_threads(threads or before)
    try:
        a = torch.ones(rows, hidden, device=device)
        b = torch.ones(hidden, inner, device=device)
        best, start = float("inf"), time.perf_counter()
        for _ in range(5):
            times = max(1, int(2e8 / (2 * rows * hidden * inner)))
            began = time.perf_counter()
            for _ in range(times):
                c = a @ b
            c.sum().item()  # waits for the device
            best = min(best, (time.perf_counter() - began) / times)
            if time.perf_counter() - start > LONGEST:
                break
        return 2 * rows * hidden * inner / best
    finally:
        torch.set_num_threads(before)


def duration(plan: Plan, sizes: Any, prompt: int, device: str) -> Duration | None:
    """None if the device is not available.

    sizes: the policy's (rlzoo_lab.preview.Sizes). prompt: tokens of a prompt.
    """
    if device == "cuda" and not torch.cuda.is_available():
        return None
    config = plan.recipe.config
    r, t, e = config.rollout, config.train, config.eval
    small = sizes.parameters < 5e6  # one thread then, as rlzoo's runs have
    threads = config.run.threads or (1 if small and device == "cpu" else None)
    rows, new = r.prompts * r.samples, r.max_new_tokens
    positions = rows * (prompt + new)
    rate = measured_rate(min(positions, 4096), sizes.hidden, sizes.inner, device, threads)

    def seconds(operations: float, passes: float) -> float:
        return operations / (SHARE * rate) + passes * sizes.layers * PER_LAYER

    def sampling(n: int) -> float:
        read = n / r.samples * prompt  # samples of a group share their prompt's pass
        return seconds(2 * sizes.parameters * (read + n * new), new + 1)

    def update(parameters: int, trained: bool) -> float:
        # With adapters no gradient of the frozen weights is computed: 4 operations instead of 6.
        each = 6 if trained else 4
        calls = 3 * t.minibatches  # forward and backward
        once = seconds(each * parameters * positions, calls) + t.minibatches * PER_UPDATE
        return t.epochs * once

    scored = int(plan.reference) + len(plan.teachers) + int(r.old_log_probs == "recomputed")
    step = sampling(rows) + scored * seconds(2 * sizes.parameters * positions, 1)
    step += update(sizes.parameters, not config.model.lora.rank)
    if plan.critic:
        step += seconds(2 * sizes.trunk * positions, 1)
        step += update(sizes.trunk, True) if config.critic.trunk == "own" else 0.0
    evaluation = sampling(e.samples) + sampling(min(e.samples, 256))  # greedy ones as well
    total = None
    if t.steps is not None:
        total = t.steps * step + (2 + (t.steps // e.every if e.every else 0)) * evaluation
    return Duration(step, evaluation, total, rate, t.steps)
