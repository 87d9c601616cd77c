"""`rlzoo model sft`: supervised fine-tuning on demonstrations. No torch at module level.

The loss covers only the response, including EOS, so that the model learns to stop; prompts are
formatted as in `rlzoo run`.
"""

import argparse
from collections.abc import Iterator, Sequence
from statistics import fmean
from typing import Any

from rlzoo.cli.verb import Result
from rlzoo.errors import ModelError, UsageError, in_short
from rlzoo.format.text import say
from rlzoo_lab.supervised import fit, options
from rlzoo_lab.supervised.fit import TokenIds
from rlzoo_lab.supervised.pairs import Demonstration, Response, conversations, read_demonstrations
from rlzoo_zoo.data import Message


def add_arguments(parser: argparse.ArgumentParser) -> None:
    options.add_arguments(parser, read_demonstrations.columns, lr=2e-5)
    options.add_chat(
        parser,
        "which prompts use the chat template (default: the preset's, or auto: messages only)",
    )


def run(arguments: argparse.Namespace) -> Result:
    return fit.run(arguments, KIND)


def _shown(report: dict[str, Any]) -> Iterator[str]:
    held = report["held_out"]
    yield f"held-out loss {held['loss_before']:.3f} -> {held['loss']:.3f} nats per response token"
    if best := report.get("overfits_after"):
        rose = f"the held-out loss rose after epoch {best:g} of {report['epochs']:.3g}, while the"
        yield f"{rose} training loss fell: the model overfits; try --epochs {best:g} or more rows"
    elif held["loss"] > 0.9 * held["loss_before"]:
        yield f"the loss hardly fell; try {fit.what_to_try(report)}"
    if report["chat"] == "always":
        yield "prompts used the chat template, so a run from this model needs model.chat=always"


def prompt_format(arguments: argparse.Namespace, tokenizer: Any, start: fit.Start) -> Any:
    """How prompts are formatted: according to --chat, otherwise to the preset named by --model."""
    from rlzoo.lm.prompts import SAMPLE, PromptFormat

    chat = arguments.chat or options.of_preset(arguments.model, "model.chat") or "auto"
    reader = PromptFormat(tokenizer, chat)
    asked = [row.prompt for row in start.training[:SAMPLE]]
    if asked:
        for note in reader.examined(asked, options.chat_args(arguments), options.CHAT_ARG):
            say(note.replace("model.chat=", "--chat "))
    if unread := reader.unread(conversations(start.training)):
        say(unread)
    return reader


def causal(arguments: argparse.Namespace, start: fit.Start) -> tuple[Any, Any, Any]:
    """(model, tokenizer, format of prompts) of a causal LM that learns."""
    from rlzoo.lm.loading import load_causal_lm, load_tokenizer, refuse_ahead

    model = load_causal_lm(start.folder)
    refuse_ahead(lambda ids: model(input_ids=ids).logits, model.device, str(start.folder))
    given = options.chat_args(arguments)
    tokenizer = load_tokenizer(start.folder, chat_args=given, key=options.CHAT_ARG)
    return model, tokenizer, prompt_format(arguments, tokenizer, start)


def learner(arguments: argparse.Namespace, start: fit.Start) -> fit.Learner:
    """A causal LM: cross-entropy of the response."""
    from transformers import GenerationConfig

    from rlzoo.lm.loading import eos_ids

    model, tokenizer, reader = causal(arguments, start)
    ends = eos_ids(model.config, tokenizer)
    before = list[float]()

    def encoded(row: Demonstration) -> TokenIds:
        return encode(reader, row.prompt, row.response)

    def collate(items: list[TokenIds]) -> dict[str, Any]:
        return batch_of(items, tokenizer.pad_token_id)

    def losses(tests: fit.Rows) -> list[float]:
        model.eval()
        return row_losses(model, tests, collate, arguments.batch)

    def ready(rows: fit.Rows, tests: fit.Rows) -> tuple[fit.Rows, fit.Rows]:
        before.append(fmean(losses(tests)))
        return rows, tests

    def judged(rows: fit.Rows, tests: fit.Rows) -> dict[str, Any]:
        model.generation_config = GenerationConfig(  # so that plain `generate` ends, too
            eos_token_id=sorted({response[-1] for _, response in rows} | set(ends)),
            pad_token_id=tokenizer.pad_token_id,
        )
        held_out = {"loss_before": before[0], "loss": fmean(losses(tests))}
        return {"held_out": held_out, "chat": reader.chat}

    return fit.Learner(model, tokenizer, encoded, lambda ids: sum(map(len, ids)), collate,
                       lambda model, given: model(**given).loss, judged, ready, losses)  # fmt: skip


def encode(reader: Any, prompt: Any, response: Response) -> TokenIds:
    """(prompt, response) as token ids; a response ends as the chat template ends a turn, where the
    prompt goes through one, else by EOS; once, also where the response contains its end.

    Raises UsageError if text follows an end: nothing is ever sampled after one."""
    from rlzoo.mdp.rules import continued, token_name
    from rlzoo_lab.supervised.reward_models import without_end

    if not isinstance(response, str):
        return reader.encode(prompt), written(reader, prompt, response)
    tokenizer = reader.tokenizer
    end = reader.end_of_turn if reader.templated(prompt) else None
    end = tokenizer.eos_token_id if end is None else end
    text = without_end(tokenizer, response, end)
    for name in (token_name(tokenizer, i) for i in {end, tokenizer.eos_token_id}):
        if name in text:
            raise UsageError(f"response {in_short(response)}: text follows {name}, which ends it")
    if reader.templated(prompt):
        text = reader.gap + text
    ids = reader.encode(prompt)
    return ids, [*continued(tokenizer, text, *ids[-1:]), end]


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


def row_losses(model: Any, rows: Sequence[TokenIds], collate: Any, batch: int) -> list[float]:
    """-log pi of each row's response, over the mean number of tokens: in nats, and their mean is
    that of all tokens."""
    from torch.nn.functional import cross_entropy

    device = next(model.parameters()).device
    nats: list[float] = []
    for start in range(0, len(rows), batch):
        inputs = {n: x.to(device) for n, x in collate(rows[start : start + batch]).items()}
        labels = inputs.pop("labels")[:, 1:]
        logits = model(**inputs).logits[:, :-1].float().transpose(1, 2)
        each = cross_entropy(logits, labels, ignore_index=fit.IGNORED, reduction="none")
        nats += each.sum(1).tolist()
    tokens = fmean(len(response) for _, response in rows)
    return [x / tokens for x in nats]


KIND = fit.Kind("sft", "row", read_demonstrations, learner, _shown)
