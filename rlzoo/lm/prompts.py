"""Prompts as tokens: plain text unchanged, chat messages through the tokenizer's template."""

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any

import torch

from rlzoo.errors import ModelError, RlzooError
from rlzoo.lm.weights import reading
from rlzoo.mdp.batch import left_pad
from rlzoo.mdp.rules import draw_examples, unknown_character
from rlzoo.mdp.turns import MARK
from rlzoo.plugin.columns import Columns
from rlzoo.plugin.protocols import Task, Tokenizer

SAMPLE = 256  # prompts drawn to see what a task's are like

Prompt = str | list[dict[str, str]]  # text, or chat messages {"role", "content"}


class PromptFormat:
    """How prompts become tokens: plain text unchanged, messages through the chat template.

    chat: "auto" does this; "always" treats plain text as a user's message; "never" joins the
    contents of messages, one per line. system: a system message to add first.
    """

    def __init__(self, tokenizer: Tokenizer, chat: str = "auto", system: str | None = None):
        self.tokenizer = tokenizer
        self.chat = chat
        self.system = system
        if chat == "always" and not tokenizer.chat_template:
            raise ModelError("model.chat is always, but the tokenizer has no chat template")

    def templated(self, prompt: Prompt) -> bool:
        """Whether the prompt goes through the chat template."""
        return self.chat == "always" or (self.chat == "auto" and not isinstance(prompt, str))

    def messages(self, prompt: Prompt) -> list[dict[str, str]]:
        """The prompt as chat messages."""
        found = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else list(prompt)
        if self.system and self.templated(prompt):
            return [{"role": "system", "content": self.system}, *found]
        return found

    def text(self, prompt: Prompt) -> str:
        """The text that the policy reads."""
        if not self.templated(prompt):
            return prompt if isinstance(prompt, str) else "\n".join(m["content"] for m in prompt)
        if not self.tokenizer.chat_template:
            raise ModelError(
                "the prompts are chat messages, but the tokenizer has no chat template; "
                "model.chat=never joins them into one text"
            )
        said = self.messages(prompt)
        return through_template(self.tokenizer, said, tokenize=False, add_generation_prompt=True)

    def encode(self, prompt: Prompt) -> list[int]:
        """Token ids; raises where the tokenizer does not have a character."""
        return self.encode_each([prompt])[0]

    def encode_each(self, prompts: Iterable[Prompt]) -> list[list[int]]:
        """Token ids of each, by one call of the tokenizer for each way in which they are read."""
        keys = [(self.text(prompt), self.templated(prompt)) for prompt in prompts]
        found: dict[tuple[str, bool], list[int]] = {}
        for chat in {templated for _, templated in keys}:  # a template writes the special tokens
            new = [key for key in dict.fromkeys(keys) if key[1] is chat]
            rows = encode_each(self.tokenizer, [t for t, _ in new], add_special_tokens=not chat)
            found |= zip(new, rows, strict=True)
        return [found[key] for key in keys]

    def told(self, columns: Columns) -> dict[str, Any]:
        """`columns` with prompts that have the answer on a line before them; in a chat before the
        text of the last message."""
        rows = []
        names = ("prompts", "messages", "answers")
        for text, messages, answer in zip(*(columns[n] for n in names), strict=True):
            *before, last = messages
            plain = "\n".join(m["content"] for m in messages) == text
            said = f"{answer}\n{text if plain else last['content']}"
            if not plain:
                chat = [*before, {**last, "content": said}]
                said = through_template(
                    self.tokenizer, chat, tokenize=False, add_generation_prompt=True
                )
            rows.append(encode(self.tokenizer, said, add_special_tokens=plain))
        mask = columns["prompt_mask"]
        ids, seen = left_pad(rows, int(self.tokenizer.pad_token_id), mask.device)
        return {**columns, "prompt_ids": ids, "prompt_mask": seen.to(mask)}

    @cached_property
    def end_of_turn(self) -> int | None:
        """The special token by which the chat template ends an assistant's message, if any."""
        if not self.tokenizer.chat_template:
            return None
        messages = [{"role": "user", "content": "-"}, {"role": "assistant", "content": MARK}]
        try:
            whole = through_template(self.tokenizer, messages, tokenize=False)
        except ModelError:  # it does not take such a conversation
            return None
        after = self.tokenizer(whole.partition(MARK)[2], add_special_tokens=False)["input_ids"]
        added = self.tokenizer.added_tokens_decoder
        return next((i for i in after if i in added and added[i].special), None)

    def ends(self, task: Task, name: str, eos_ids: Sequence[int]) -> list[int]:
        """`eos_ids`, with the template's end of turn where the task's prompts go through it."""
        through = self.tokenizer.chat_template and map(self.templated, drawn(task, name, "train"))
        end = self.end_of_turn if through and any(through) else None
        return sorted({*eos_ids, *([] if end is None else [end])})


def how_read(chat: str, prompts: Iterable[Prompt]) -> str:
    """A line on the effect of `model.chat` if the tokenizer has a template."""
    if chat == "never":
        return "prompts are plain text, because model.chat=never disables the chat template"
    if chat == "always" or not any(isinstance(prompt, str) for prompt in prompts):
        return f"prompts are formatted with the chat template (model.chat={chat})"
    return (
        "prompts are plain text, although the tokenizer has a chat template; a chat model needs "
        "model.chat=always (model.chat=never also disables this note)"
    )


def through_template(
    tokenizer: Tokenizer, messages: Sequence[Mapping[str, str]], **how: Any
) -> Any:
    """`apply_chat_template`, with a template's error on one line."""
    roles = ", ".join(str(m.get("role")) for m in messages)
    with reading(f"the tokenizer's chat template does not support messages from {roles}"):
        return tokenizer.apply_chat_template(messages, **how)


def drawn(task: Task, name: str, split: str) -> list[Prompt]:
    """Some of the task's prompts, always the same."""
    generator = torch.Generator().manual_seed(0)
    return [example.prompt for example in draw_examples(task, name, split, SAMPLE, generator)]


def encode(tokenizer: Tokenizer, text: str, *, add_special_tokens: bool = True) -> list[int]:
    """Token ids of a prompt; raises where the tokenizer does not have a character."""
    return encode_each(tokenizer, [text], add_special_tokens=add_special_tokens)[0]


def encode_each(
    tokenizer: Tokenizer, texts: list[str], *, add_special_tokens: bool = True
) -> list[list[int]]:
    """`encode` of each text, in one call of the tokenizer."""
    for text in texts:
        if not text.isascii() and re.search("[\ud800-\udfff]", text):
            raise RlzooError(
                f"prompt {text!r}: contains bytes or half characters that are not Unicode; in a "
                "terminal, set a UTF-8 locale such as LC_ALL=C.UTF-8"
            )
    rows = tokenizer(texts, add_special_tokens=add_special_tokens)["input_ids"]
    for text, ids in zip(texts, rows, strict=True):
        if alien := unknown_character(tokenizer, text, ids):
            raise RlzooError(f"prompt {text!r}: the tokenizer has no token for {alien!r}")
        if not ids:
            raise RlzooError(f"prompt {text!r} is empty, so it has no tokens")
    return rows
