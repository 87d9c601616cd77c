"""The estimates k1, k2 and k3 of the KL, in the loss and in the reward: exactly on enumerated
worlds, and in runs. They are rows of `references.py`: issue 489 of rlhf-book."""

import json
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median
from typing import Any

import torch

import claims
from common import plus_minus, rlzoo, table
from rlzoo import resume, run
from rlzoo_lab.kit.oracle.oracle import Oracle
from rlzoo_lab.kit.oracle.worlds import make_world

Kept = dict[str, dict[str, tuple[Any, ...]]]  # row -> seed -> what its `play` returns

# ---------------------------------------------------------------- KL estimates, in runs


@dataclass(frozen=True)
class Speller:
    """A model that learns to spell words backward before RL, not to perfection.

    letters: at least and at most, in a word. pairs: words to learn from. taught, words: options of
    `rlzoo model sft` and of the runs.
    """

    name: str
    model: str
    letters: tuple[int, int]
    pairs: int
    taught: tuple[str, ...]
    words: tuple[str, ...]
    seeds: range

    def base(self, folder: Path, zoo: Any) -> tuple[Path, list[str]]:
        """The taught model, and its task."""
        low, high = self.letters
        settings = {"dataset": "spell_backward", "size": 3000,
                    "config": [f"min_word_len={low}", f"max_word_len={high}"]}  # fmt: skip
        base, file = folder / "models" / self.name, folder / f"{self.name}.jsonl"
        if not (base / "config.json").is_file():
            task = zoo.tasks["reasoning_gym"](**settings | {"size": 2 * self.pairs})
            drawn = task.draw("train", self.pairs, torch.Generator().manual_seed(0))
            pairs = [{"prompt": x.prompt, "response": x.answer} for x in drawn]
            file.write_text("".join(json.dumps(x) + "\n" for x in pairs), encoding="utf-8")
            rlzoo(
                "model", "sft", str(file), "--model", self.model, "--out", str(base), *self.taught
            )
        return base, [f"task.{name}={json.dumps(value)}" for name, value in settings.items()]

    def play(self, arm: str, folder: Path, seed: int, zoo: Any) -> tuple[float, ...]:
        """Accuracy and score on held-out words at the end, KL to the start in the last 20 steps in
        nats a token, the largest gradient by the median one, CPU seconds."""
        path, began = folder / f"{self.name}-{arm}--seed{seed}", time.process_time()
        base, task = self.base(folder, zoo)
        if (path / "recipe.yaml").is_file():
            resume(path, zoo=zoo)
        else:
            more = [*penalty(arm), *task, f"model.path={base}", f"seed={seed}", f"run.dir={path}"]
            run("grpo", [*SPELL, *self.words, *more], zoo=zoo)
        for file in path.rglob("*.safetensors"):
            file.unlink()
        lines = [json.loads(x) for x in (path / "metrics.jsonl").read_text("utf-8").splitlines()]
        steps = [line for line in lines if "actor/grad_norm" in line]
        end = [line for line in lines if "eval/score" in line][-1]
        drift = [line["actor/ref_kl"] for line in steps[-20:] if "actor/ref_kl" in line]
        norms = [line["actor/grad_norm"] for line in steps]
        seconds = time.process_time() - began
        return (end["eval/accuracy"], end["eval/score"], round(fmean(drift or [0.0]), 4),
                round(max(norms) / median(norms), 2), round(seconds, 1))  # fmt: skip


def penalty(arm: str) -> list[str]:
    kl, _, place = arm.partition("-")
    return ["kl.place=none"] if arm == "none" else [f"kl={kl}", f"kl.place={place}"]


# The source's settings, but not its sampler: at temperature 0.6, cut to the most likely tokens,
# while its log-probs are of temperature 1, so that its samples are not the policy's.
SPELL = ("task=reasoning_gym", "rollout.prompts=4", "rollout.samples=8", "train.minibatches=4",
         "rollout.max_new_tokens=8", "kl.coef=0.04", "eval.every=0", "eval.samples=256",
         "checkpoint.every=50", "checkpoint.keep=1", "run.samples=0", "run.threads=1",
         "device=cpu")  # fmt: skip
ARMS = ("none", *(f"k{n}-{place}" for place in ("loss", "reward") for n in (1, 2, 3)))
SPELLERS = (
    Speller("kl-reader", "reader", (3, 4), 4000, ("--epochs", "9", "--lr", "0.004"),
            ("train.steps=200", "actor.lr=5e-4"), range(2, 12)),
    Speller("kl-smollm2", "smollm2-135m-instruct", (3, 5), 640, ("--batch", "16", "--lr", "1e-4"),
            ("train.steps=30", "model.chat=always", "actor.lr=5e-6"), range(2, 5)),
)  # fmt: skip


def runs_table(kept: Kept) -> str:
    """Each arm's means over seeds with 95 % intervals, and its score minus that of k3 in the loss,
    paired by seed."""
    rows = []
    for speller in SPELLERS:
        base = kept.get(f"{speller.name}-k3-loss", {})
        for arm in ARMS:
            if not (runs := kept.get(f"{speller.name}-{arm}", {})):
                continue
            _, score, drift, gradient, _ = map(list, zip(*runs.values(), strict=True))
            pairs = [runs[seed][1] - base[seed][1] for seed in runs.keys() & base.keys()]
            rows.append([
                speller.model, f"`{arm}`", plus_minus(score),
                "" if arm == "k3-loss" else plus_minus(pairs),
                "" if arm == "none" else plus_minus(drift),
                f"{median(gradient):.1f} ({max(gradient):.0f})", f"{len(runs)}",
            ])  # fmt: skip
    head = ["model", "arm", "score", "minus `k3-loss`", "KL a token", "gradient", "seeds"]
    return table(head, rows)


# ---------------------------------------------------------------- KL estimates, exactly


def pulls(world: Oracle) -> dict[str, tuple[torch.Tensor, torch.Tensor]]:
    """name -> (S, V) expected gradients in the logits of k1, k2 and k3, at the policy that samples:
    as a loss, and in the reward."""
    ratio, pi, visits = world.log_ratio, world.pi, world.visits[:, None]
    k = {"k1": ratio, "k2": ratio.square() / 2, "k3": (-ratio).expm1() + ratio}
    slope = {"k1": torch.ones_like(ratio), "k2": ratio, "k3": -(-ratio).expm1()}  # d k / d log pi

    def through(x: torch.Tensor) -> torch.Tensor:  # from log pi to the logits
        return visits * pi * (x - (pi * x).sum(-1, keepdim=True))

    return {name: (through(slope[name]), world.gradient(k[name])) for name in k}


def exact_table() -> str:
    """Cosine with, and length by, the exact gradient of KL(pi, pi_ref) between responses."""
    found: dict[tuple[str, str], list[list[str]]] = {}
    for steps in STEPS:
        cells: dict[tuple[str, str], list[tuple[float, float]]] = {}
        for seed in claims.SEEDS:
            world = claims.trained(make_world("graded", claims.TREE, seed=seed), 0.0, steps)
            exact = world.gradient(world.log_ratio)
            for name, both in pulls(world).items():
                for place, pull in zip(("loss", "reward"), both, strict=True):
                    length = float(pull.norm() / exact.norm())
                    cosine = float((pull * exact).sum() / (pull.norm() * exact.norm() + 1e-300))
                    cells.setdefault((place, name), []).append((cosine, length))
        for key, values in cells.items():
            none = max(length for _, length in values) < 1e-12  # rounding
            spread = ["none" if none else claims.spread([x[i] for x in values]) for i in (0, 1)]
            found.setdefault(key, []).append(spread)
    rows = [
        [f"`{name}` in the {place}", *(x for spread in each for x in spread)]
        for (place, name), each in sorted(found.items())
    ]
    head = [f"{what}, {steps} steps" for steps in STEPS for what in ("cosine", "length")]
    return table(["estimate", *head], rows)


STEPS = (10, 100)  # of exact gradient ascent away from the reference
