"""TRL's side of `bench step --peer trl`: model, prompts and reward are the same.

    python -P tests/benchmarks/bench/peer_trl.py '{"trainer": "...", "settings": {...}, ...}'

prints one JSON line, as `bench.cases` does. It runs in an interpreter that has TRL and
need not have rlzoo, so it imports nothing of it.
"""

import importlib.util
import json
import os
import runpy
import sys
import tempfile
import time
from collections.abc import Callable
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

Sample = dict[str, Any]


# The reward, the clock and the memory of rlzoo's side, by path: nothing is imported from there.
COMMON = runpy.run_path(str(Path(__file__).resolve().parent / "common.py"))
reward, cpu_seconds, peak_mb = (COMMON[name] for name in ("reward", "cpu_seconds", "peak_mb"))


class Meter:
    """Tokens, CPU and wall seconds from one step's end to the next, and the CPU time of phases."""

    def __init__(self) -> None:
        self.samples: list[Sample] = []
        self.tokens = 0
        self.phases: dict[str, float] = {}
        self.last: tuple[float, float] | None = None

    def timed(self, phase: str, function: Callable) -> Callable:
        def run(*given: Any, **named: Any) -> Any:
            began = cpu_seconds()
            try:
                return function(*given, **named)
            finally:
                self.phases[phase] = self.phases.get(phase, 0.0) + cpu_seconds() - began

        return run

    def end_step(self) -> None:
        cpu, wall = cpu_seconds(), time.perf_counter()
        if self.last is not None:  # the first step has no step's end before it
            spent = {"cpu": cpu - self.last[0], "wall": wall - self.last[1]}
            self.samples.append({"tokens": self.tokens, **spent, "phases": self.phases})
        self.last, self.tokens, self.phases = (cpu, wall), 0, {}

    def callback(self) -> Any:
        from transformers import TrainerCallback

        meter = self

        class AtStepEnd(TrainerCallback):
            def on_step_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
                meter.end_step()

        return AtStepEnd()


def passes(spec: dict[str, Any]) -> dict[str, Any]:
    """One optimizer step for each rollout, in forward and backward passes of `rows` rows."""
    whole = len(spec["prompts"]) // spec["steps"] * spec["samples"]
    return {
        "per_device_train_batch_size": spec["rows"],
        "gradient_accumulation_steps": whole // spec["rows"],
    }


def group_relative(spec: dict[str, Any], out: str) -> Meter:
    """A trainer of trl that takes a reward function and samples in groups."""
    import trl
    from datasets import Dataset

    meter = Meter()
    settings = {
        **passes(spec),
        "num_generations": spec["samples"],
        "max_completion_length": spec["max_new_tokens"],
        "num_iterations": 1,
        "shuffle_dataset": False,
        **spec["settings"],
    }

    def scored(prompts: list[str], completions: list[str], **more: Any) -> list[float]:
        meter.tokens += sum(map(len, more["completion_ids"]))
        return reward(prompts, completions)

    trainer = getattr(trl, spec["trainer"])(
        model=spec["model"],
        args=getattr(trl, spec["config"])(output_dir=out, max_steps=spec["steps"], **settings),
        reward_funcs=scored,
        train_dataset=Dataset.from_dict({"prompt": spec["prompts"]}),
        callbacks=[meter.callback()],
    )
    trainer.model.generate = meter.timed("gen", trainer.model.generate)
    trainer.accelerator.backward = meter.timed("backward", trainer.accelerator.backward)
    name = "_get_per_token_logps_and_entropies"
    setattr(trainer, name, meter.timed("forward", getattr(trainer, name)))
    trainer.train()
    return meter


def with_critic(spec: dict[str, Any], out: str) -> Meter:
    """A trainer of trl that has a value model and asks a reward model, for which stands a module
    that decodes and calls `reward`: as cheap as the other side's."""
    import torch
    from datasets import Dataset
    from transformers import (
        AutoModelForCausalLM,
        AutoModelForSequenceClassification,
        AutoTokenizer,
        GenerationConfig,
    )

    home = import_module(spec["module"])
    meter = Meter()
    tokenizer = AutoTokenizer.from_pretrained(spec["model"], padding_side="left")

    class Hidden:
        """What a backbone returns: its last hidden state is the ids."""

        def __init__(self, ids: Any):
            self.hidden_states = (ids,)

    class Backbone(torch.nn.Module):
        def forward(self, input_ids: Any, **more: Any) -> Hidden:
            return Hidden(input_ids)

    class Reward(torch.nn.Module):
        base_model_prefix = "backbone"

        def __init__(self) -> None:
            super().__init__()
            self.backbone = Backbone()

        def score(self, ids: Any) -> Any:
            responses = ids[:, -spec["max_new_tokens"] :]
            meter.tokens += int((responses != tokenizer.pad_token_id).sum())
            texts = tokenizer.batch_decode(responses, skip_special_tokens=True)
            given = tokenizer.batch_decode(ids[:, : -spec["max_new_tokens"]], True)
            found = torch.tensor(reward(given, texts))
            return found[:, None, None].expand(*ids.shape, 1)

    def load(kind: Any, **more: Any) -> Any:
        model = kind.from_pretrained(spec["model"], dtype=torch.float32, **more)
        model.config.pad_token_id = tokenizer.pad_token_id
        return model

    policy = load(AutoModelForCausalLM)
    policy.generation_config = GenerationConfig(
        pad_token_id=tokenizer.pad_token_id, eos_token_id=tokenizer.eos_token_id
    )
    rows = [tokenizer(p)["input_ids"] for p in spec["prompts"] for _ in range(spec["samples"])]
    policy.generate = meter.timed("gen", policy.generate)
    settings = {
        **passes(spec),
        "response_length": spec["max_new_tokens"],
        "total_episodes": len(rows),
        "local_rollout_forward_batch_size": spec["rows"],
        **spec["settings"],
    }
    trainer = getattr(home, spec["trainer"])(
        args=getattr(home, spec["config"])(output_dir=out, **settings),
        processing_class=tokenizer,
        model=policy,
        ref_model=load(AutoModelForCausalLM),
        reward_model=Reward(),
        value_model=load(AutoModelForSequenceClassification, num_labels=1),
        train_dataset=Dataset.from_dict({"input_ids": rows}),
        callbacks=[meter.callback()],
    )
    trainer.accelerator.backward = meter.timed("backward", trainer.accelerator.backward)
    trainer.train()
    return meter


def missing(spec: dict[str, Any]) -> str | None:
    """Why this interpreter cannot run the trainer, or None."""
    if importlib.util.find_spec("trl") is None:
        return "has no trl"
    home = spec.get("module", "trl")
    try:
        getattr(import_module(home), spec["trainer"])
    except (ImportError, AttributeError):
        return f"has trl {version('trl')}, without {home}.{spec['trainer']}"
    return None


def main(text: str) -> None:
    # What trainers print must not spoil the one line.
    line, sys.stdout = sys.stdout, sys.stderr
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")
    spec = json.loads(text)
    lack = missing(spec)
    if lack:
        print(json.dumps({"missing": lack}), file=line)
        return
    import torch
    import transformers
    import trl

    torch.set_num_threads(spec["threads"])
    transformers.utils.logging.disable_progress_bar()
    with tempfile.TemporaryDirectory() as out:
        meter = (with_critic if "module" in spec else group_relative)(spec, out)
    versions = {"trl": trl.__version__, "torch": torch.__version__}
    found = {
        "samples": meter.samples[-spec["repeat"] :],
        "peak_mb": peak_mb(),
        "versions": versions | {"transformers": transformers.__version__},
    }
    print(json.dumps(found), file=line)


if __name__ == "__main__":
    main(sys.argv[1])
