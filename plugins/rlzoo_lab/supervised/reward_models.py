"""Reward models: loaded from folders, and called for scores.

One is a sequence classifier with one label; a process reward model is a token classifier with two,
read at the end of each step.
"""

import contextlib
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

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
from rlzoo_lab.supervised.forms import as_chat

WHOLE, TOKENS = "SequenceClassification", "TokenClassification"
LABELS = {WHOLE: 1, TOKENS: 2}  # of TOKENS, label 1: the step is right
NOUNS = {  # kind -> what it is, and what makes one
    WHOLE: ("sequence classifier", "`rlzoo model reward`"),
    TOKENS: ("token classifier", "`rlzoo model reward --per-step`"),
}


class _Frozen:
    """A frozen model with its own tokenizer, in eval mode.

    path:   a folder that `rlzoo model reward` made, or a hub id
    device: a device of torch, by name; dtype: float32, bfloat16 or float16
    key:    the recipe key that an error names
    """

    kind = WHOLE

    def __init__(self, path: str, device: str, dtype: str = "float32", *, key: str = "path"):
        self.check(path)
        self.folder = resolve_path(path, key)
        self.model, self.tokenizer = load(self.folder, device, dtype, self.kind)

    @classmethod
    def check(cls, path: str, device: str = "auto") -> None:
        """Raise RlzooError if the model or device does not exist; reads only small files."""
        check(path, device, cls.kind)

    def _asked(self, prompts: Sequence[str], messages: Sequence[Prompt]) -> Sequence[Prompt]:
        """The form that the tokenizer reads: with a chat template `messages`, else `prompts`."""
        return messages if self.tokenizer.chat_template else prompts


class RewardModel(_Frozen):
    """A frozen reward model."""

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

        ended: whether a response has an end; max_length: tokens read, the last ones; batch: rows
        per pass.
        """
        import torch

        limit = longest(self.model, max_length)
        every = zip(self._asked(prompts, messages), responses, ended, strict=True)
        rows = [encode(self.tokenizer, prompt, response, ended=end, limit=limit)
                for prompt, response, end in every]  # fmt: skip
        with torch.no_grad():
            return score(self.model, rows, batch)


class Steps(NamedTuple):
    """Token ids of a prompt and its steps, and where in them each step ends."""

    ids: list[int]
    ends: list[int]


class ProcessRewardModel(_Frozen):
    """A frozen process reward model. separator: the text after each step; None: the one in the
    folder's report.json, else a newline."""

    kind = TOKENS

    def __init__(self, path: str, device: str, dtype: str = "float32", *,
                 separator: str | None = None, key: str = "path"):  # fmt: skip
        super().__init__(path, device, dtype, key=key)
        self.separator = separator or _report(self.folder).get("separator", "\n")

    def steps(self, response: str) -> list[str]:
        """The pieces of a response between separators; white space is not a step."""
        return response.split(self.separator)

    def probabilities(
        self,
        prompts: Sequence[str],
        messages: Sequence[Prompt],
        responses: Sequence[str],
        *,
        max_length: int | None = None,
        batch: int = 64,
    ) -> list[list[float | None]]:
        """P(right) of each piece of `steps(response)`; None for a piece that is not a step, or
        ends beyond `max_length` tokens. batch: rows per pass."""
        import torch

        limit = longest(self.model, max_length)
        pieces = [self.steps(response) for response in responses]
        rows = [
            encode_steps(self.tokenizer, prompt, filter(str.strip, texts), self.separator, limit)
            for prompt, texts in zip(self._asked(prompts, messages), pieces, strict=True)
        ]
        with torch.no_grad():
            found = [iter(row) for row in score_steps(self.model, rows, batch)]
        return [
            [next(scores, None) if piece.strip() else None for piece in texts]
            for texts, scores in zip(pieces, found, strict=True)
        ]


def check(path: str, device: str = "auto", kind: str = WHOLE) -> None:
    """Raise RlzooError if the model or device does not exist; reads only small files."""
    if not path:
        raise RlzooError(
            "path is missing; give a folder written by `rlzoo model reward`, or a hub id"
        )
    if device != "auto":
        pick_device(device)
    folder = typed_path(path)
    if folder.is_dir():
        refuse(folder, kind)
    elif path.count("/") != 1 or path[0] in "./~" or folder.parent.is_dir():  # no hub id
        beside = [p.name for p in folder.parent.glob("*") if p.is_dir()]
        raise RlzooError(f"path: there is no folder {path!r}{nearest(folder.name, beside)}")


def refuse(folder: Path, kind: str = WHOLE) -> None:
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
    _refuse_labels(folder, there, kind)
    names = ("tokenizer.json", "tokenizer_config.json", "tokenizer.model", "vocab.txt")
    if not any((folder / name).is_file() for name in names):
        raise ModelError(f"{folder}: has no tokenizer (none of {', '.join(names)})")


def _refuse_labels(folder: Path, there: int, kind: str) -> None:
    if there != (labels := LABELS[kind]):
        many = "one label" if labels == 1 else f"{labels} labels"
        raise ModelError(
            f"{folder}: a reward model of this kind has {many}, but this one has {there}"
        )


def load(folder: Path, device: Any, dtype: str = "float32", kind: str = WHOLE) -> tuple[Any, Any]:
    """(model, tokenizer) of a reward model, frozen, in eval mode."""
    import torch
    import transformers

    refuse(folder, kind)
    with _quiet(folder):
        model = load_weights(
            getattr(transformers, f"AutoModelFor{kind}"),
            folder,
            dtype=getattr(torch, dtype),
            trust_remote_code=False,
        )
    tokenizer = load_tokenizer(folder, _report(folder).get("chat_args"))
    return model.to(device).eval().requires_grad_(False), tokenizer


def _report(folder: Path) -> dict[str, Any]:
    """The report of the training; empty for a model that rlzoo did not train."""
    file = folder / "report.json"
    return read_mapping(file) if file.is_file() else {}


def make(
    folder: Path, kind: str = WHOLE, chat_args: dict[str, Any] | None = None
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
            _refuse_labels(folder, config.num_labels, kind)
        model = getattr(transformers, f"AutoModelFor{kind}").from_pretrained(
            folder, num_labels=LABELS[kind], dtype=torch.float32, use_safetensors=True, **how
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
        ids = opened(tokenizer, tokenizer(prompt)["input_ids"])
        ids = ids + continued(tokenizer, response, *ids[-1:]) + [tokenizer.eos_token_id] * ended
    return _last(ids, [i == tokenizer.bos_token_id for i in ids[:1]], limit)


def _last(ids: list[int], kept: Sequence[int], limit: int | None) -> list[int]:
    """The last `limit` tokens, those that are `kept` among them."""
    over = len(ids) - (limit or len(ids))
    free = [i for i in range(len(ids)) if i >= len(kept) or not kept[i]]
    cut = set(free[: max(over, 0)])
    return [x for i, x in enumerate(ids) if i not in cut]


def _conversation(tokenizer: Any, prompt: Prompt, answer: dict[str, Any], ended: bool) -> list[int]:
    messages = as_chat(prompt)
    if not ended and not answer["content"].strip():  # nothing is written yet
        return through_template(tokenizer, messages, add_generation_prompt=True, return_dict=False)
    return through_template(
        tokenizer, [*messages, answer], continue_final_message=not ended, return_dict=False
    )


def score(model: Any, rows: Sequence[list[int]], batch: int = 64) -> Any:
    """Scores (N,) of rows of token ids; with gradient, if the caller has it on."""
    import torch

    scores: list[Any] = [None] * len(rows)
    for part in alike([*map(len, rows)], batch):
        with _padding([rows[i] for i in part], model) as fill:
            out = model(**inputs([rows[i] for i in part], model, fill)).logits
        for i, x in zip(part, out[:, 0].float(), strict=True):
            scores[i] = x
    return torch.stack(scores)


def alike(lengths: Sequence[int], batch: int) -> Iterator[list[int]]:
    """Indices in batches of about one length: little padding."""
    order = sorted(range(len(lengths)), key=lengths.__getitem__)
    yield from (order[start : start + batch] for start in range(0, len(order), batch))


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


def encode_steps(
    tokenizer: Any, prompt: Prompt, steps: Iterable[str], separator: str, limit: int | None = None
) -> Steps:
    """A prompt, then each step and the separator, encoded separately as TRL's PRMTrainer does: a
    step ends at the last token of its separator. BOS and the chat template are the tokenizer's.
    limit: tokens that are kept, and with them the steps that end there."""
    if tokenizer.chat_template:
        said = as_chat(prompt)
        ids = through_template(tokenizer, said, add_generation_prompt=True, return_dict=False)
    elif not isinstance(prompt, str):
        raise ModelError("the prompt has chat messages, but the tokenizer has no template")
    else:
        ids = tokenizer(prompt, add_special_tokens=False)["input_ids"]
        ids = [tokenizer.bos_token_id] * (tokenizer.bos_token_id is not None) + ids
    after = continued(tokenizer, separator)
    if not after:
        raise ModelError(f"the separator {separator!r} has no tokens in this tokenizer")
    ends = []
    for step in steps:
        ids = [*ids, *continued(tokenizer, step, *ids[-1:]), *after]
        ends.append(len(ids) - 1)
    return Steps(ids[:limit], [end for end in ends if limit is None or end < limit])


def score_steps(model: Any, rows: Sequence[Steps], batch: int = 64) -> list[list[float]]:
    """P(label 1) at each step's end."""
    found: list[list[float]] = [[] for _ in rows]
    device = next(model.parameters()).device
    for every in alike([len(row.ids) for row in rows], batch):
        part = [i for i in every if rows[i].ends]
        if not part:
            continue
        ids, mask = right_pad([rows[i].ids for i in part], 0)  # the mask marks the tokens
        logits = model(input_ids=ids.to(device), attention_mask=mask.to(device)).logits
        right = logits.float().softmax(-1)[..., 1].cpu()
        for i, row in zip(part, right, strict=True):
            found[i] = row[rows[i].ends].tolist()
    return found
