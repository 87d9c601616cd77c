"""`rlzoo model sft`: supervised fine-tuning on demonstrations. No torch at module level.

The loss covers only the response, including EOS, so that the model learns to stop; prompts are
formatted as in `rlzoo run`.
"""

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from rlzoo.cli.verb import Result
from rlzoo.errors import ModelError, UsageError, in_short
from rlzoo_lab.supervised import fit
from rlzoo_lab.supervised.fit import TokenIds
from rlzoo_lab.supervised.pairs import Demonstration, Response, read_demonstrations
from rlzoo_zoo.data import Message


def add_arguments(parser: argparse.ArgumentParser) -> None:
    fit.add_arguments(parser, read_demonstrations.columns, lr=2e-5)
    fit.add_chat(
        parser,
        "which prompts use the chat template (default: the preset's, or auto: messages only)",
    )


def run(arguments: argparse.Namespace) -> Result:
    return fit.run(arguments, KIND)


def _judged(report: dict[str, Any], counted: str) -> Iterator[Any]:
    yield counted
    held = report["held_out"]
    yield f"held-out loss {held['loss_before']:.3f} -> {held['loss']:.3f} nats per response token"
    if held["loss"] > 0.9 * held["loss_before"]:
        yield f"the loss hardly fell; try {fit.what_to_try(report)}"
    if report["chat"] == "always":
        yield "prompts used the chat template, so a run from this model needs model.chat=always"


def train(arguments: argparse.Namespace, start: fit.Start, folder: Path) -> dict[str, Any]:
    """Train a causal LM on demonstrations; returns the report."""
    from transformers import GenerationConfig

    from rlzoo.lm.loading import eos_ids, load_causal_lm, load_tokenizer
    from rlzoo_lab.reward_models.reward_model import longest

    model = load_causal_lm(start.folder)
    tokenizer = load_tokenizer(start.folder, chat_args=fit.chat_args(arguments), key=fit.CHAT_ARG)
    reader = fit.prompt_format(arguments, tokenizer, start)
    ends = eos_ids(model.config, tokenizer)

    def encoded(row: Demonstration) -> TokenIds:
        return encode(reader, row.prompt, row.response)

    limit = longest(model, arguments.max_length)
    rows, tests, counts = start.encoded(encoded, lambda ids: sum(map(len, ids)), limit)

    def collate(items: list[TokenIds]) -> dict[str, Any]:
        return batch_of(items, tokenizer.pad_token_id)

    def loss(model: Any, inputs: dict[str, Any]) -> Any:
        return model(**inputs).loss

    fit.settle(arguments, model, len(rows))
    model.to(start.device)
    before = held_out_loss(model, tests, collate, arguments.batch)
    fit.fit(model, rows, collate, loss, arguments, "sft", folder)
    after = held_out_loss(model, tests, collate, arguments.batch)
    model.generation_config = GenerationConfig(  # so that plain `generate` ends, too
        eos_token_id=sorted({response[-1] for _, response in rows} | set(ends)),
        pad_token_id=tokenizer.pad_token_id,
    )
    held = {"loss_before": before, "loss": after}
    results = {"rows": counts, "held_out": held, "chat": reader.chat}
    return fit.save(model, tokenizer, arguments, results, folder)


def encode(reader: Any, prompt: Any, response: Response) -> TokenIds:
    """(prompt, response) as token ids; a response ends as the chat template ends a turn, where the
    prompt goes through one, else by EOS; once, also where the response contains its end.

    Raises UsageError if text follows an end: nothing is ever sampled after one."""
    from rlzoo.mdp.rules import continued, token_name
    from rlzoo_lab.reward_models.reward_model import without_end

    if not isinstance(response, str):
        return reader.encode(prompt), written(reader, prompt, response)
    tokenizer = reader.tokenizer
    end = reader.end_of_turn if reader.templated(prompt) else None
    end = tokenizer.eos_token_id if end is None else end
    text = without_end(tokenizer, response, end)
    for name in (token_name(tokenizer, i) for i in {end, tokenizer.eos_token_id}):
        if name in text:
            raise UsageError(f"response {in_short(response)}: text follows {name}, which ends it")
    return reader.encode(prompt), [*continued(tokenizer, text), end]


def written(reader: Any, prompt: Any, message: Message) -> list[int]:
    """A response with more than text, such as calls of tools, as the template writes it after the
    prompt, up to its end of turn; raises ModelError where it does not."""
    from rlzoo.lm.templates import through_template

    fields, asked = ", ".join(sorted(message.keys() - {"role", "content"})), reader.messages(prompt)
    if not reader.templated(prompt):
        raise ModelError(f"a response has {fields}, which needs a chat template (see --chat)")

    def text(last: Message) -> str:
        return through_template(reader.tokenizer, [*asked, last], tokenize=False)

    before, whole = reader.text(prompt), text(message)
    if not whole.startswith(before):
        raise ModelError(
            f"the chat template writes a prompt otherwise before a response with {fields}"
        )
    if "tool_calls" in message and whole == text({**message, "tool_calls": None}):
        raise ModelError("the chat template does not write the tool calls of a response")
    ids = reader.tokenizer(whole.removeprefix(before), add_special_tokens=False)["input_ids"]
    end, eos = reader.end_of_turn, reader.tokenizer.eos_token_id
    after = next((i for i in reversed(range(len(ids))) if ids[i] in (end, eos)), None)
    return [*ids, eos] if after is None else ids[: after + 1]


def batch_of(items: Sequence[TokenIds], fill: int) -> dict[str, Any]:
    """input_ids, attention_mask and labels, (B, L) each: labels leave out prompts and padding."""
    from rlzoo.mdp.batch import right_pad

    ids, mask = right_pad([p + r for p, r in items], fill)
    labels, _ = right_pad([[fit.IGNORED] * len(p) + r for p, r in items], fit.IGNORED)
    return {"input_ids": ids, "attention_mask": mask, "labels": labels}


def held_out_loss(model: Any, rows: Sequence[TokenIds], collate: Any, batch: int) -> float:
    """The mean of -log pi over response tokens, in nats."""
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


KIND = fit.Kind("row", read_demonstrations, train, _judged)
