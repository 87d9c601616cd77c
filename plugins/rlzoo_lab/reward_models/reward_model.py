"""A reward model: a sequence classifier with one label; reading one, and scoring with it."""

import contextlib
import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from rlzoo.accel.device import pick_device
from rlzoo.errors import ModelError, RlzooError, nearest, typed_path
from rlzoo.lm.loading import resolve_path
from rlzoo.lm.prompts import Prompt, PromptFormat, opened
from rlzoo.lm.templates import bind, through_template
from rlzoo.lm.weights import load_weights, reading
from rlzoo.mdp.batch import right_pad
from rlzoo.mdp.rules import continued, token_name
from rlzoo.plugin.protocols import Tokenizer
from rlzoo.runs.disk import read_mapping


class RewardModel:
    """A frozen reward model with its own tokenizer, in eval mode.

    path:   a folder that `rlzoo model reward` made, or a hub id
    device: a device of torch, by name; dtype: float32, bfloat16 or float16
    key:    the recipe key that an error names
    """

    def __init__(self, path: str, device: str, dtype: str = "float32", *, key: str = "path"):
        self.check(path)
        self.model, self.tokenizer = load(resolve_path(path, key), device, dtype)

    @staticmethod
    def check(path: str, device: str = "auto") -> None:
        """Raise RlzooError if the model or device does not exist; reads only small files."""
        check(path, device)

    def scores(
        self,
        prompts: Sequence[str],
        messages: Sequence[Prompt],
        responses: Sequence[str],
        ended: Sequence[bool],
        *,
        max_length: int | None = None,
        batch: int = 64,
    ) -> Any:
        """r(prompt, response), (B,) float32 without gradient, on the model's device.

        With a chat template the tokenizer reads `messages`, without one `prompts`. ended: whether
        a response has an end; max_length: tokens read, the last ones; batch: rows per pass.
        """
        import torch

        limit = longest(self.model, max_length)
        asked = messages if self.tokenizer.chat_template else prompts
        rows = [
            encode(self.tokenizer, prompt, response, ended=end, limit=limit)
            for prompt, response, end in zip(asked, responses, ended, strict=True)
        ]
        with torch.no_grad():
            return score(self.model, rows, batch)


def check(path: str, device: str = "auto", **what: Any) -> None:
    """Raise RlzooError if the model or device does not exist; reads only small files."""
    if not path:
        raise RlzooError(
            "path is missing; give a folder written by `rlzoo model reward`, or a hub id"
        )
    if device != "auto":
        pick_device(device)
    folder = typed_path(path)
    if folder.is_dir():
        refuse(folder, **what)
    elif path.count("/") != 1 or path[0] in "./~" or folder.parent.is_dir():  # no hub id
        beside = [p.name for p in folder.parent.glob("*") if p.is_dir()]
        raise RlzooError(f"path: there is no folder {path!r}{nearest(folder.name, beside)}")


NOUNS = {  # kind -> what it is, and what makes one
    "SequenceClassification": ("sequence classifier", "`rlzoo model reward`"),
    "TokenClassification": ("token classifier", "`rlzoo model reward --per-step`"),
}


def refuse(folder: Path, kind: str = "SequenceClassification", labels: int = 1) -> None:
    """Raise if `folder` is not a reward model of this kind; reads only small files."""
    file = folder / "config.json"
    if not file.is_file():
        raise ModelError(f"{folder}: not a reward model, because it has no config.json")
    try:
        config = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ModelError(f"{file}: not valid JSON: {error}") from None
    architecture = (config.get("architectures") or ["?"])[0]
    if not architecture.endswith(f"For{kind}"):
        noun, maker = NOUNS[kind]
        raise ModelError(f"{folder}: {architecture} is not a {noun}; use {maker} to make one")
    there = len(config.get("id2label") or (0, 1))  # transformers leaves out its default, two
    _refuse_labels(folder, there, labels)
    names = ("tokenizer.json", "tokenizer_config.json", "tokenizer.model", "vocab.txt")
    if not any((folder / name).is_file() for name in names):
        raise ModelError(f"{folder}: has no tokenizer (none of {', '.join(names)})")


def _refuse_labels(folder: Path, there: int, labels: int) -> None:
    if there != labels:
        many = "one label" if labels == 1 else f"{labels} labels"
        raise ModelError(
            f"{folder}: a reward model of this kind has {many}, but this one has {there}"
        )


def load(
    folder: Path,
    device: Any,
    dtype: str = "float32",
    kind: str = "SequenceClassification",
    labels: int = 1,
) -> tuple[Any, Any]:
    """(model, tokenizer) of a reward model, frozen, in eval mode."""
    import torch
    import transformers

    refuse(folder, kind, labels)
    with _quiet(folder):
        model = load_weights(
            getattr(transformers, f"AutoModelFor{kind}"),
            folder,
            dtype=getattr(torch, dtype),
            trust_remote_code=False,
        )
    report = folder / "report.json"
    chat_args = read_mapping(report).get("chat_args") if report.is_file() else None
    return model.to(device).eval().requires_grad_(False), load_tokenizer(folder, chat_args)


def make(
    folder: Path, kind: str, labels: int, chat_args: dict[str, Any] | None = None
) -> tuple[Any, Any]:
    """(model, tokenizer): the network in `folder` under a new head, or one that it has. chat_args:
    arguments of the chat template."""
    import torch
    import transformers

    tokenizer = load_tokenizer(folder, chat_args)
    how: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}
    with _quiet(folder):
        config = transformers.AutoConfig.from_pretrained(folder, **how)
        if kind in (config.architectures or [""])[0]:  # it has a head
            _refuse_labels(folder, config.num_labels, labels)
        model = getattr(transformers, f"AutoModelFor{kind}").from_pretrained(
            folder, num_labels=labels, dtype=torch.float32, use_safetensors=True, **how
        )
    return model, tokenizer


def load_tokenizer(folder: Path, chat_args: dict[str, Any] | None = None) -> Any:
    from transformers import AutoTokenizer

    with _quiet(folder):
        found = AutoTokenizer.from_pretrained(
            folder, local_files_only=True, trust_remote_code=False
        )
    return bind(found, chat_args, "--chat-arg")


@contextlib.contextmanager
def _quiet(folder: Path) -> Iterator[None]:
    """No progress bars or advice on stderr; a folder that cannot be loaded is one line."""
    from transformers.utils import logging

    before = logging.get_verbosity()
    logging.disable_progress_bar()
    logging.set_verbosity_error()
    try:
        with reading(f"{folder}: cannot be loaded"):
            yield
    finally:
        logging.set_verbosity(before)


def encode(
    tokenizer: Any,
    prompt: Prompt,
    response: str | dict[str, Any],
    *,
    ended: bool = True,
    limit: int | None = None,
) -> list[int]:
    """Token ids of a prompt and a response: the last `limit` of them, and BOS.

    With a chat template, prompt and response become a conversation whose last message is finished
    or still being written. Without one a prompt is text, and EOS marks the end of the response. An
    encoder reads a pair of texts, in its tokenizer's own format, of which no special token is cut
    off.
    """
    if ended and isinstance(response, str):
        response = without_end(tokenizer, response, PromptFormat(tokenizer).end_of_turn)
    if tokenizer.chat_template:
        last = {"role": "assistant", "content": response}
        last = response if isinstance(response, dict) else last
        ids = _conversation(tokenizer, prompt, last, ended)
    elif not isinstance(prompt, str) or not isinstance(response, str):
        raise ModelError("the prompt has chat messages, but the tokenizer has no template")
    elif tokenizer.sep_token_id is not None or tokenizer.eos_token_id is None:  # an encoder's
        pair = tokenizer(prompt, response, return_special_tokens_mask=True)
        return _last(pair["input_ids"], pair["special_tokens_mask"], limit)
    else:
        ids = opened(tokenizer, tokenizer(prompt)["input_ids"]) + continued(tokenizer, response)
        ids = ids + [tokenizer.eos_token_id] * ended
    return _last(ids, [i == tokenizer.bos_token_id for i in ids[:1]], limit)


def _last(ids: list[int], kept: Sequence[int], limit: int | None) -> list[int]:
    """The last `limit` tokens, those that are `kept` among them."""
    over = len(ids) - (limit or len(ids))
    free = [i for i in range(len(ids)) if i >= len(kept) or not kept[i]]
    cut = set(free[: max(over, 0)])
    return [x for i, x in enumerate(ids) if i not in cut]


def _conversation(tokenizer: Any, prompt: Prompt, answer: dict[str, Any], ended: bool) -> list[int]:
    messages = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else list(prompt)
    if not ended and not answer["content"].strip():  # nothing is written yet
        return through_template(tokenizer, messages, add_generation_prompt=True, return_dict=False)
    return through_template(
        tokenizer, [*messages, answer], continue_final_message=not ended, return_dict=False
    )


def score(model: Any, rows: Sequence[list[int]], batch: int = 64) -> Any:
    """Scores (N,) of rows of token ids; with gradient, if the caller has it on."""
    import torch

    order = sorted(range(len(rows)), key=lambda i: len(rows[i]))  # little padding
    scores: list[Any] = [None] * len(rows)
    for start in range(0, len(rows), batch):
        part = order[start : start + batch]
        with _padding([rows[i] for i in part], model) as fill:
            out = model(**inputs([rows[i] for i in part], model, fill)).logits
        for i, x in zip(part, out[:, 0].float(), strict=True):
            scores[i] = x
    return torch.stack(scores)


def inputs(rows: Sequence[list[int]], model: Any, fill: int) -> dict[str, Any]:
    """The model's inputs for rows of token ids, (B, L) each, padded on the right by `fill`.

    A model that distinguishes two texts (BERT) gets token_type_ids: the second begins after the
    separator, which also ends the row.
    """
    ids, mask = right_pad(rows, fill)
    found = {"input_ids": ids, "attention_mask": mask}
    if (getattr(model.config, "type_vocab_size", None) or 0) > 1:
        types = [[int(i > row.index(row[-1])) for i in range(len(row))] for row in rows]
        found["token_type_ids"] = right_pad(types, 0)[0]
    device = next(model.parameters()).device
    return {name: x.to(device) for name, x in found.items()}


@contextlib.contextmanager
def _padding(rows: Sequence[list[int]], model: Any) -> Iterator[int]:
    """A padding id that ends none of the rows: transformers reads a row's score at its last token
    that is not the config's padding, and many tokenizers pad with EOS."""
    config = model.config.get_text_config()
    own, last = config.pad_token_id, {row[-1] for row in rows}
    free = (i for i in range(len(last) + 1) if i not in last)
    config.pad_token_id = next(free) if own is None or own in last else own
    try:
        yield config.pad_token_id
    finally:
        config.pad_token_id = own


def longest(model: Any, max_length: int | None) -> int | None:
    """How many tokens the model reads: the requested number, within its position limit."""
    own = getattr(model.config.get_text_config(), "max_position_embeddings", None)
    table = getattr(getattr(model.base_model, "embeddings", None), "position_embeddings", None)
    offset = getattr(table, "padding_idx", None)
    if own and offset is not None:  # RoBERTa counts from after it
        own -= offset + 1
    return min((n for n in (max_length, own) if n), default=None)


def without_end(tokenizer: Tokenizer, response: str, end: int | None = None) -> str:
    """A response without the end tokens that it ends with: EOS, and `end`, if any."""
    ends = {tokenizer.eos_token_id, tokenizer.eos_token_id if end is None else end}
    names = "|".join(re.escape(token_name(tokenizer, i)) for i in ends if i is not None)
    return re.sub(rf"(?:{names})(?:\s|{names})*$", "", response) if names else response
