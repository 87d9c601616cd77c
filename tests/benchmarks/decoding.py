"""What decoding asks of a device for each token, counted on the pretend GPU, for docs/speed.md.

    python tests/benchmarks/decoding.py --against DIR

DIR: an older checkout, measured beside this one. Nothing is timed: a launch is an operation that a
device would be sent (views are none), a captured graph one; a wait is the host's, for the device.
"""

import argparse
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import torch
import torch._dynamo  # before anything pretends: it lists what torch has
import transformers.generation  # it reads the names of torch.cuda
import transformers.modeling_utils  # noqa: F401

TESTS = Path(__file__).resolve().parents[1]
ROWS, GROUP, NEW = 16, 8, 64


def policy(lora: bool, layers: int):
    """Qwen2.5-0.5B's layers and cache, narrow beside: the counts are the same."""
    from transformers import AutoModelForCausalLM, Qwen2Config

    from helpers.architectures import TOKENIZER
    from rlzoo.lm.lora import add_lora
    from rlzoo.lm.policy import Policy

    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=1024, hidden_size=64, intermediate_size=64, num_hidden_layers=layers,
        num_attention_heads=14, num_key_value_heads=2, head_dim=64, tie_word_embeddings=True,
    )  # fmt: skip
    model = AutoModelForCausalLM.from_config(config).eval()
    if lora:
        add_lora(model, rank=8, alpha=16, targets=None, base="a model")
    found = Policy.of(model.to("cuda"), TOKENIZER, autocast=True)
    return replace(found, eos_ids=[config.vocab_size])  # none ends


def counted(lora: bool, fixed: bool, layers: int) -> dict:
    """Launches, waits and bytes of the cache for a token of a response."""
    from helpers.pretend_gpu import pretend_gpu
    from rlzoo.mdp.batch import left_pad

    kept: list = []
    with pretend_gpu() as gpu:
        one = policy(lora, layers)
        if fixed:
            from rlzoo.accel.decode import Decoder
            from rlzoo.accel.sampling_copy import SamplingCopy

            copied = SamplingCopy(one.model, torch.bfloat16)
            one = replace(one, decoder=Decoder(static=True, dtype="bfloat16", copy=copied))
        prompts = [[5 + i // GROUP] * (8 + i // GROUP) for i in range(ROWS)]
        cpu = torch.device("cpu")
        ids, mask = (x.to("cuda") for x in left_pad(prompts, one.pad_id, cpu))
        u = torch.rand(ROWS, NEW, generator=torch.manual_seed(0), dtype=torch.float64).to("cuda")
        network = one.decoder.copy.model if fixed else one.model
        network.register_forward_pre_hook(
            lambda module, args, kw: kept.append(kw.get("past_key_values")), with_kwargs=True
        )
        gpu.clear()
        one.generate(ids, mask, u)
        cache = kept[-1].layers[-1]
        size = sum(x.element_size() * x[0, :, 0].numel() for x in (cache.keys, cache.values))
        return {
            "launches": sum(gpu.launches.values()) / NEW,
            "graphs": gpu.launches["graph"],
            "waits": gpu.waited() / NEW,
            "cache": size * layers,
        }


def measure(layers: int) -> list[dict]:
    return [
        {"lora": lora, "fixed": fixed, **counted(lora, fixed, layers)}
        for lora in (False, True)
        for fixed in (False, True)
    ]


def table(before: list[dict], now: list[dict]) -> str:
    from helpers.scripts import script

    lines = []
    for by, row in [*(("before", r) for r in before), *(("now", r) for r in now)]:
        kind = "fixed shape, bfloat16 copy, graphs" if row["fixed"] else "grows, autocast"
        lines.append(
            [
                "LoRA" if row["lora"] else "all weights", by, kind, f"{row['launches']:,.1f}",
                f"{row['waits']:.2f}", f"{row['cache'] / 1024:.1f}",
            ]
        )  # fmt: skip
    head = ["trained", "by", "cache", "launches a token", "waits a token", "KB a token and row"]
    return script("common").table(head, sorted(lines, key=lambda line: line[0]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--against", metavar="DIR", type=Path, help="an older checkout")
    parser.add_argument("--layers", type=int, default=24)
    parser.add_argument("--json", action="store_true", help="print the rows")
    asked = parser.parse_args()
    if asked.json:
        print(json.dumps(measure(asked.layers)))
        return
    before = []
    if asked.against:
        tests = asked.against / "tests"  # with its own copy of this file, which knows its names
        path = f"{asked.against}:{asked.against / 'plugins'}:{tests}"
        before = json.loads(subprocess.run(
            [sys.executable, tests / "benchmarks" / "decoding.py", "--json"],
            env={**os.environ, "PYTHONPATH": path}, check=True, stdout=subprocess.PIPE, text=True,
        ).stdout.splitlines()[-1])  # fmt: skip
    print(table(before, measure(asked.layers)))


if __name__ == "__main__":
    sys.path[:0] = [str(TESTS)]
    main()
