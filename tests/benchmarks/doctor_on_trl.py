"""How often `rlzoo doctor` finds a fault that was planted in a run of TRL, from TRL's own output.

    python tests/benchmarks/doctor_on_trl.py RUNS           # train what is not there yet
    python tests/benchmarks/doctor_on_trl.py RUNS --judge   # import each run and judge it

Needs TRL 1.16 next to rlzoo. The runs are GRPO on two-digit sums from the shipped base `nano`, 40
steps of 16 prompts x 4 responses, one thread; the faults are those of doctor_faults.py that TRL
lets one plant. The doctor sees trainer_state.json, training_args.bin and the logged completions,
and no more. Each run is a fork of one process, kept under RUNS, so that it can be judged again.
`noticed`: a warning or a problem. `named`: the first finding is about what was planted.
"""

import argparse
import itertools
import json
import os
import re
import shutil
import zlib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from doctor_blind import forked

BASE = Path(__file__).parents[2] / "configs" / "model" / "nano"
PROMPTS, SAMPLES, STEPS = 16, 4, 40
USUAL = {
    "per_device_train_batch_size": PROMPTS * SAMPLES, "gradient_accumulation_steps": 1,
    "num_generations": SAMPLES, "max_completion_length": 5, "max_steps": STEPS,
    "learning_rate": 1e-3, "lr_scheduler_type": "constant", "temperature": 1.0,
    "logging_steps": 1, "log_completions": True, "num_completions_to_print": 0,
    "save_strategy": "no", "report_to": "none", "use_cpu": True, "bf16": False,
    "gradient_checkpointing": False, "disable_tqdm": True,
}  # fmt: skip
Reward = Callable[..., list[float]]


def right(prompts: list[str], completions: list[str], answer: list[str], **_: Any) -> list[float]:
    return [float(c == a) for c, a in zip(completions, answer, strict=True)]


def each(score: Callable[[str, str], float]) -> Reward:
    """A reward of a response and its answer."""

    def reward(
        prompts: list[str], completions: list[str], answer: list[str], **_: Any
    ) -> list[float]:
        return [float(score(c, a)) for c, a in zip(completions, answer, strict=True)]

    return reward


def coin() -> Reward:
    import random

    draw = random.Random(5)
    return each(lambda c, a: draw.random() < 0.4)


def next_row(
    prompts: list[str], completions: list[str], answer: list[str], **_: Any
) -> list[float]:
    scores = right(prompts, completions, answer)
    return scores[1:] + scores[:1]


def by_prompt(prompts: list[str], **_: Any) -> list[float]:
    """The same score for all samples of a prompt, as from a cache with a wrong key."""
    return [zlib.crc32(prompt.encode()) % 2 for prompt in prompts]


def flipped() -> Reward:
    import random

    draw = random.Random(5)
    return each(lambda c, a: (c == a) != (draw.random() < 0.4))


def lost(trainer: Any) -> None:
    """Advantages are 0 in the loss and in the log."""
    plain = trainer._generate_and_score_completions

    def scored(inputs: Any) -> Any:
        out = plain(inputs)
        out["advantages"] = 0 * out["advantages"]
        trainer._logs["advantages"].extend([0.0] * len(out["advantages"]))
        return out

    trainer._generate_and_score_completions = scored


def turned(trainer: Any) -> None:
    """Advantages have the wrong sign in the loss, and are logged as they are used."""
    plain = trainer._generate_and_score_completions

    def scored(inputs: Any) -> Any:
        out = plain(inputs)
        out["advantages"] = -out["advantages"]
        logged = trainer._logs["advantages"]
        recent = [-logged.pop() for _ in range(len(out["advantages"]))]
        logged.extend(reversed(recent))
        return out

    trainer._generate_and_score_completions = scored


def stale(trainer: Any) -> None:
    """Samples come from the weights that the run began with."""
    import torch

    plain = trainer._generate_and_score_completions
    first = {k: v.clone() for k, v in trainer.model.state_dict().items()}
    generate = trainer._generate

    def old(*args: Any, **more: Any) -> Any:
        now = {k: v.clone() for k, v in trainer.model.state_dict().items()}
        trainer.model.load_state_dict(first)
        try:
            with torch.no_grad():
                return generate(*args, **more)
        finally:
            trainer.model.load_state_dict(now)

    trainer._generate = old
    trainer._generate_and_score_completions = plain


class Case(NamedTuple):
    """`says`: a pattern that the first finding must match; empty for a healthy run. `plant`
    changes the trainer, `data` the rows."""

    name: str
    settings: dict[str, Any]
    says: str = ""
    rewards: Any = None
    plant: Callable[[Any], None] | None = None
    data: Callable[[list[dict[str, str]]], list[dict[str, str]]] | None = None


RATE = r"actor\.lr"
REWARD = r"reward_is|reward is n|does not follow|depend|noisy"
FAULTS = [
    Case("lr x50", {"learning_rate": 0.05}, RATE),
    Case("lr x1000", {"learning_rate": 1.0}, RATE),
    Case("lr 0", {"learning_rate": 0.0}, RATE),
    Case("lr tiny", {"learning_rate": 2e-8}, RATE),
    Case("lr warm-up forever", {"warmup_steps": 100_000,
                                "lr_scheduler_type": "constant_with_warmup"}, r"lr_warmup"),
    Case("grad clip 1e-6", {"max_grad_norm": 1e-6}, r"max_grad_norm"),
    Case("clip 0.0005", {"epsilon": 0.0005, "num_iterations": 4, "max_steps": 160},
         r"policy_loss\.clip"),
    Case("weight decay 300", {"weight_decay": 300.0}, r"weight_decay"),
    Case("eps 1", {"adam_epsilon": 1.0}, r"actor\.eps"),
    Case("beta 10", {"beta": 10.0}, r"kl\.coef"),
    Case("entropy bonus 1", {"entropy_coef": 1.0}, r"entropy_coef"),
    Case("temperature 3", {"temperature": 3.0}, r"temperature"),
    Case("top_k 1", {"top_k": 1}, r"top_k|same text|copies"),
    Case("30 passes", {"num_iterations": 30, "max_steps": 720}, r"train\.epochs|actor\.lr"),
    Case("limit 2", {"max_completion_length": 2}, r"max_new_tokens"),
    Case("reward constant", {}, r"same|constant", lambda: each(lambda c, a: 0.5)),
    Case("coin reward", {}, REWARD, coin),
    Case("reward of the next row", {}, REWARD, lambda: next_row),
    Case("paid for wrong", {}, REWARD + "|gamed", lambda: each(lambda c, a: c != a)),
    Case("paid for short", {}, REWARD + "|gamed", lambda: each(lambda c, a: -len(c) / 5)),
    Case("advantage sign", {}, r"advantage", None, turned),
    Case("frozen sampler", {}, r"sampler|sampled", None, stale),
    Case("one prompt", {}, r"one_prompt", None, None, lambda rows: rows[:1] * len(rows)),
    Case("too hard", {}, r"hard|right|same", None, None,
         lambda rows: [r | {"answer": r["answer"] + "77"} for r in rows]),
]  # fmt: skip
FRESH = [  # planted after the rules had been mended; none was changed for them
    Case("lr x20", {"learning_rate": 0.02}, RATE),
    Case("lr x30, beta", {"learning_rate": 0.03, "beta": 0.04, "loss_type": "grpo"}, RATE),
    Case("lr 1e-9, beta", {"learning_rate": 1e-9, "beta": 0.04}, RATE),
    Case("beta 3", {"beta": 3.0}, r"kl\.coef"),
    Case("entropy bonus 0.3", {"entropy_coef": 0.3}, r"entropy_coef"),
    Case("temperature 0.1", {"temperature": 0.1}, r"temperature"),
    Case("top_p 0.3", {"top_p": 0.3}, r"top_p|copies"),
    Case("limit 1", {"max_completion_length": 1}, r"max_new_tokens"),
    Case("grad clip 1e-8", {"max_grad_norm": 1e-8}, r"max_grad_norm"),
    Case("clip 0.001", {"epsilon": 0.001, "num_iterations": 3, "max_steps": 120,
                        "loss_type": "grpo"}, r"policy_loss\.clip"),
    Case("momentum 0.9999", {"adam_beta1": 0.9999}, r"betas|momentum"),
    Case("one score for a prompt", {}, r"no_signal_in_groups", lambda: by_prompt),
    Case("noisy reward", {}, REWARD, flipped),
    Case("answers of other prompts", {}, r"hard|answer", None, None,
         lambda rows: [r | {"answer": s["answer"]} for r, s in itertools.pairwise(rows)]),
    Case("advantages lost", {}, r"advantage", None, lost),
]  # fmt: skip
HEALTHY = [
    Case("defaults", {}),
    Case("beta 0.01", {"beta": 0.01}),
    Case("grpo loss, beta 0.04", {"loss_type": "grpo", "beta": 0.04}),
    Case("dr_grpo", {"loss_type": "dr_grpo", "scale_rewards": "none"}),
    Case("two passes", {"num_iterations": 2, "max_steps": 80}),
    Case("four minibatches", {"per_device_train_batch_size": 16, "steps_per_generation": 4,
                              "max_steps": 120, "learning_rate": 5e-4}),
    Case("eight samples", {"num_generations": 8}),
    Case("entropy bonus", {"entropy_coef": 0.001}),
    Case("60 steps, linear", {"lr_scheduler_type": "linear", "max_steps": 60, "warmup_steps": 4}),
    Case("two rewards, evaluated", {"reward_weights": [1.0, 0.2], "eval_strategy": "steps",
                                    "eval_steps": 10, "per_device_eval_batch_size": 64},
         rewards=lambda: [right, digits]),
    Case("every fifth step logged", {"logging_steps": 5, "max_steps": 60}),
    Case("cosine, sequence ratio", {"lr_scheduler_type": "cosine", "beta": 0.001,
                                    "importance_sampling_level": "sequence", "num_iterations": 2,
                                    "max_steps": 80}),
]  # fmt: skip


def digits(prompts: list[str], completions: list[str], answer: list[str], **_: Any) -> list[float]:
    return [float(c.isdecimal()) for c in completions]


def rows(split: str, n: int, seed: int) -> list[dict[str, str]]:
    """Two-digit sums; which fifth is held out depends only on the prompt, as in task `addition`."""
    import random

    draw, out = random.Random(seed), []
    while len(out) < n:
        a, b = draw.randrange(100), draw.randrange(100)
        prompt = f"{a}+{b}="
        if (zlib.crc32(prompt.encode()) % 5 == 0) == (split == "test"):
            out.append({"prompt": prompt, "answer": str(a + b)})
    return out


def train(case: Case, folder: Path, seed: int) -> None:
    import torch
    from datasets import Dataset
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from trl import GRPOConfig, GRPOTrainer

    folder.mkdir(parents=True)
    settings = GRPOConfig(output_dir=str(folder), seed=seed, **{**USUAL, **case.settings})
    data = rows("train", 4000, seed)
    rewards = case.rewards() if case.rewards else right
    trainer = GRPOTrainer(
        model=AutoModelForCausalLM.from_pretrained(BASE, dtype=torch.float32),
        processing_class=AutoTokenizer.from_pretrained(BASE, padding_side="left"),
        reward_funcs=rewards, args=settings,
        train_dataset=Dataset.from_list(case.data(data) if case.data else data),
        eval_dataset=Dataset.from_list(rows("test", 64, seed)),
    )  # fmt: skip
    if case.plant:
        case.plant(trainer)
    trainer.train()
    trainer.save_state()  # trainer_state.json; the arguments are what `save_model` writes
    torch.save(trainer.args, folder / "training_args.bin")


def judge(folder: Path, run: Path) -> list[dict[str, str]]:
    """The doctor's findings in the imported run, with notes."""
    from rlzoo.cli import parser_of
    from rlzoo.runs.folder import open_folder
    from rlzoo_lab.doctor.command import examine
    from rlzoo_lab.doctor.series import read_run
    from rlzoo_lab.imports import command

    shutil.rmtree(run, ignore_errors=True)
    words = [str(folder), "--out", str(run), "--from", "trl"]
    command.run(parser_of("import").parse_args(words))
    findings = examine(read_run(open_folder(str(run))))[0]
    return [{"rule": f.rule, "severity": f.severity, "what": f.what, "advice": f.advice}
            for f in findings]  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path, metavar="RUNS")
    parser.add_argument("--seed", type=int, default=3)
    parser.add_argument("--judge", action="store_true", help="judge what is there, train nothing")
    parser.add_argument("--only", default="", help="cases whose name matches")
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    groups = {"faults": FAULTS, "fresh": FRESH, "healthy": HEALTHY}
    cases = [(g, i, c) for g, cs in groups.items() for i, c in enumerate(cs)
             if re.search(asked.only, c.name)]  # fmt: skip
    if not asked.judge:
        os.environ |= {"HF_HUB_OFFLINE": "1", "TRL_EXPERIMENTAL_SILENCE": "1"}
        import torch
        import trl.trainer.grpo_trainer  # noqa: F401

        torch.set_num_threads(1)
    found: dict[str, dict[str, Any]] = {}
    for group, i, case in cases:
        folder = asked.out / group / re.sub(r"\W+", "-", case.name)
        source, run = folder / "trl", folder / "run"
        if not asked.judge and not (source / "training_args.bin").exists():
            began = sum(os.times()[:4])
            shutil.rmtree(source, ignore_errors=True)
            seed = asked.seed + 1000 * i * (group == "healthy")
            forked(source, partial(train, case, source, seed))
            print(f"{case.name}: {sum(os.times()[:4]) - began:.0f} CPU s", flush=True)
        if not (source / "training_args.bin").exists():
            print(f"   (not there: {case.name})")
            continue
        findings = judge(source, run)
        first = next((f for f in findings if f["severity"] != "note"), {})
        named = bool(first and case.says and re.search(case.says, first["rule"] + first["what"]))
        found[f"{group}/{case.name}"] = {"noticed": bool(first), "noted": bool(findings),
                                         "named": named, "findings": findings}  # fmt: skip
        mark = "named" if named else "noticed" if first else "noted" if findings else "nothing"
        text = first or (findings or [{"rule": "", "what": ""}])[0]
        print(f"{group:8} {case.name:26} {mark:8} {text['rule']}: {text['what'][:150]}", flush=True)
    for group in groups:
        part = [f for name, f in found.items() if name.startswith(group)]
        if part:
            print(f"{group}: {len(part)} runs, {sum(f['noticed'] for f in part)} noticed, "
                  f"{sum(f['named'] for f in part)} named")  # fmt: skip
    if asked.json:
        asked.json.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
