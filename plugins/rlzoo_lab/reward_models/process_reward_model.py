"""A process reward model: a token classifier with two labels, read at the end of each step."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rlzoo.errors import ModelError
from rlzoo.lm.loading import resolve_path
from rlzoo.lm.prompts import Prompt
from rlzoo.lm.templates import through_template
from rlzoo.mdp.batch import right_pad
from rlzoo.mdp.rules import continued
from rlzoo.runs.disk import read_mapping
from rlzoo_lab.reward_models import reward_model
from rlzoo_lab.reward_models.reward_model import load, longest

KIND, LABELS = "TokenClassification", 2  # label 1: the step is right
SEPARATOR = "\n"  # after each step, by default


class Read(NamedTuple):
    """Token ids of a prompt and its steps, and where in them each step ends."""

    ids: list[int]
    ends: list[int]


class ProcessRewardModel:
    """A frozen process reward model with its own tokenizer, in eval mode.

    path:      a folder that `rlzoo model reward --per-step` made, or a hub id
    device:    a device of torch, by name; dtype: float32, bfloat16 or float16
    separator: the text after each step; None: the one in the folder's report.json, else a newline
    key:       the recipe key that an error names
    """

    def __init__(
        self,
        path: str,
        device: str,
        dtype: str = "float32",
        *,
        separator: str | None = None,
        key: str = "path",
    ):
        self.check(path)
        folder = resolve_path(path, key)
        self.model, self.tokenizer = load(folder, device, dtype, kind=KIND, labels=LABELS)
        self.separator = separator or trained_separator(folder)

    @staticmethod
    def check(path: str, device: str = "auto") -> None:
        """Raise RlzooError if the model or device does not exist; reads only small files."""
        reward_model.check(path, device, kind=KIND, labels=LABELS)

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
        ends beyond `max_length` tokens. With a chat template the tokenizer reads
        `messages`, without one `prompts`; batch: rows per pass."""
        import torch

        limit = longest(self.model, max_length)
        asked = messages if self.tokenizer.chat_template else prompts
        pieces = [self.steps(response) for response in responses]
        rows = [
            cut(encode(self.tokenizer, prompt, [p for p in texts if p.strip()], self.separator),
                limit)
            for prompt, texts in zip(asked, pieces, strict=True)
        ]  # fmt: skip
        with torch.no_grad():
            found = [iter(row) for row in score(self.model, rows, batch)]
        return [
            [next(scores, None) if piece.strip() else None for piece in texts]
            for texts, scores in zip(pieces, found, strict=True)
        ]


def trained_separator(folder: Path) -> str:
    file = folder / "report.json"
    return read_mapping(file).get("separator", SEPARATOR) if file.is_file() else SEPARATOR


def encode(tokenizer: Any, prompt: Prompt, steps: Sequence[str], separator: str) -> Read:
    """A prompt, then each step and the separator, encoded separately as TRL's PRMTrainer does: a
    step ends at the last token of its separator. BOS and the chat template are the tokenizer's."""
    if tokenizer.chat_template:
        said = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else list(prompt)
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
        ids = [*ids, *continued(tokenizer, step), *after]
        ends.append(len(ids) - 1)
    return Read(ids, ends)


def cut(row: Read, limit: int | None) -> Read:
    """Its first `limit` tokens, and the steps that end within them."""
    if limit is None:
        return row
    return Read(row.ids[:limit], [end for end in row.ends if end < limit])


def score(model: Any, rows: Sequence[Read], batch: int = 64) -> list[list[float]]:
    """P(label 1) at each step's end."""
    order = sorted(range(len(rows)), key=lambda i: len(rows[i].ids))  # little padding
    found: list[list[float]] = [[] for _ in rows]
    device = next(model.parameters()).device
    for start in range(0, len(rows), batch):
        part = [i for i in order[start : start + batch] if rows[i].ends]
        if not part:
            continue
        ids, mask = right_pad([rows[i].ids for i in part], 0)  # the mask marks the tokens
        logits = model(input_ids=ids.to(device), attention_mask=mask.to(device)).logits
        right = logits.float().softmax(-1)[..., 1].cpu()
        for i, row in zip(part, right, strict=True):
            found[i] = row[rows[i].ends].tolist()
    return found
