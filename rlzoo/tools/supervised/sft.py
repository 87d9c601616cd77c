"""`rlzoo sft`: a supervised start from demonstrations.  No torch at module level.

The loss is on the response alone, EOS included, so that the model learns to end; the prompt is
read as `rlzoo run` reads it.
"""

import argparse
import contextlib
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rlzoo.data.pairs import Demonstration, hold_out, read_demonstrations
from rlzoo.errors import FitError
from rlzoo.mdp.batch import right_pad
from rlzoo.tools.supervised import fit


def train(arguments: argparse.Namespace) -> dict[str, Any]:
    """Train a causal LM on demonstrations; returns the report, which is also in OUT/report.json."""
    fit.check_arguments(arguments)
    names = {n: getattr(arguments, n) for n in ("prompt", "response")}
    found = read_demonstrations(
        arguments.data, names, split=arguments.split, on_bad_row=arguments.on_bad_row
    )
    training, held = hold_out(
        found.rows, lambda row: row.prompt, arguments.test_fraction, arguments.seed
    )
    folder = fit.find_model(arguments.model)

    from rlzoo.lm.loading import load_causal_lm, load_tokenizer
    from rlzoo.lm.prompts import PromptFormat
    from rlzoo.parallel.device import pick_device

    device = pick_device(arguments.device)
    model, tokenizer = load_causal_lm(folder), load_tokenizer(folder)
    own = getattr(model.config.get_text_config(), "max_position_embeddings", None)
    limit = min((n for n in (arguments.max_length, own) if n), default=None)
    reader = PromptFormat(tokenizer)
    rows, too_long = _encoded(reader, training, limit)
    tests, too_long_tests = _encoded(reader, held, limit)
    if not rows or not tests:
        raise FitError(f"--max-length: no row is left of {len(found.rows)}; all are longer")

    def collate(items: list[tuple[list[int], list[int]]]) -> dict[str, Any]:
        return batch_of(items, tokenizer.pad_token_id)

    def loss(model: Any, inputs: dict[str, Any]) -> Any:
        return model(**inputs).loss

    model.to(device)
    before = held_out_loss(model, tests, collate, arguments.batch)
    fit.fit(model, rows, collate, loss, arguments, "sft")
    after = held_out_loss(model, tests, collate, arguments.batch)
    report = {
        "model": arguments.model,
        "data": str(arguments.data),
        "seed": arguments.seed,
        "epochs": arguments.epochs,
        "lr": arguments.lr,
        "batch": arguments.batch,
        "rows": {
            "trained": len(rows),
            "held_out": len(tests),
            "bad_rows": found.bad,
            "too_long": too_long + too_long_tests,
        },
        "held_out": {"loss_before": before, "loss": after},
    }
    from transformers import GenerationConfig

    model.generation_config = GenerationConfig(  # so that plain `generate` ends, too
        eos_token_id=model.config.eos_token_id, pad_token_id=tokenizer.pad_token_id
    )
    out = Path(arguments.out)
    model.save_pretrained(out)
    tokenizer.save_pretrained(out)
    (out / "report.json").write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    return report


def _encoded(
    reader: Any, rows: Sequence[Demonstration], limit: int | None
) -> tuple[list[tuple[list[int], list[int]]], int]:
    """Token ids of (prompt, response and EOS), and how many rows were left out for their length."""
    tokenizer = reader.tokenizer
    found = [
        (
            reader.encode(row.prompt),
            [
                *tokenizer(row.response, add_special_tokens=False)["input_ids"],
                tokenizer.eos_token_id,
            ],
        )
        for row in rows
    ]
    fine = [(p, r) for p, r in found if limit is None or len(p) + len(r) <= limit]
    return fine, len(found) - len(fine)


def batch_of(items: Sequence[tuple[list[int], list[int]]], fill: int) -> dict[str, Any]:
    """input_ids, attention_mask and labels, (B, L) each: labels leave out prompts and padding."""
    ids, mask = right_pad([p + r for p, r in items], fill)
    labels, _ = right_pad([[fit.IGNORED] * len(p) + r for p, r in items], fit.IGNORED)
    return {"input_ids": ids, "attention_mask": mask, "labels": labels}


def held_out_loss(
    model: Any, rows: Sequence[tuple[list[int], list[int]]], collate: Any, batch: int
) -> float:
    """Mean over response tokens of -log pi, in nats."""
    import torch

    device = next(model.parameters()).device
    total = count = 0.0
    with torch.no_grad():
        for start in range(0, len(rows), batch):
            part = rows[start : start + batch]
            inputs = {name: x.to(device) for name, x in collate(part).items()}
            tokens = sum(len(response) for _, response in part)
            total += model(**inputs).loss.item() * tokens
            count += tokens
    return total / count


# ---------------------------------------------------------------- the command


def add_arguments(parser: argparse.ArgumentParser) -> None:
    fit.add_arguments(parser, lr=2e-5)
    for name in ("prompt", "response"):
        parser.add_argument(f"--{name}", metavar="COLUMN", help=f"the {name} column's name")


def command(arguments: argparse.Namespace) -> int:
    with contextlib.redirect_stdout(sys.stderr):
        report = train(arguments)
    if arguments.json:
        print(json.dumps(report, indent=1))
        return 0
    rows, held = report["rows"], report["held_out"]
    left = f", {rows['bad_rows']} bad rows" * bool(rows["bad_rows"])
    left += f", {rows['too_long']} too long" * bool(rows["too_long"])
    print(f"{rows['trained']} rows trained on, {rows['held_out']} held out{left}")
    print(f"held-out loss {held['loss_before']:.3f} -> {held['loss']:.3f} nats per response token")
    print(f"made {arguments.out}")
    return 0
