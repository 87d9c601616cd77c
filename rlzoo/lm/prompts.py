"""Prompts as tokens: plain text unchanged, chat messages through the tokenizer's template."""

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any

import torch

from rlzoo.errors import ModelError, RlzooError
from rlzoo.lm.weights import reading
from rlzoo.mdp.batch import left_pad
from rlzoo.mdp.rules import draw_examples, unknown_character
from rlzoo.mdp.turns import MARK
from rlzoo.plugin.protocols import Task

REMEMBERED = 2**21  # ids and characters of prompts that are kept, as most come again: 40 MB
SAMPLE = 256  # prompts drawn to see what a task's are like

Prompt = str | list[dict[str, str]]  # text, or chat messages {"role", "content"}


class PromptFormat:
    """How prompts become tokens: plain text unchanged, messages through the chat template.

    chat: "auto" does this; "always" treats plain text as a user's message; "never" joins the
    contents of messages, one per line. system: a system message to add first.
    """

    def __init__(self, tokenizer: Any, chat: str = "auto", system: str | None = None):
        self.tokenizer = tokenizer
        self.chat = chat
        self.system = system
        self._encoded: dict[tuple[str, bool], list[int]] = {}
        self._remembered = 0
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
        """Token ids of each prompt; one call of the tokenizer for those that are new."""
        # A template writes the special tokens itself.
        keys = [(self.text(prompt), not self.templated(prompt)) for prompt in prompts]
        known = {key: self._encoded[key] for key in keys if key in self._encoded}
        for special in (True, False):
            new = [key for key in dict.fromkeys(keys) if key[1] is special and key not in known]
            texts = [text for text, _ in new]
            rows = encode_each(self.tokenizer, texts, add_special_tokens=special) if new else []
            for key, ids in zip(new, rows, strict=True):
                known[key] = ids
                self._remember(key, ids)
        return [known[key] for key in keys]

    def _remember(self, key: tuple[str, bool], ids: list[int]) -> None:
        self._remembered += len(key[0]) + len(ids)
        if self._remembered > REMEMBERED:
            self._encoded.clear()
            self._remembered = len(key[0]) + len(ids)
        self._encoded[key] = ids

    def told(self, columns: Mapping[str, Any]) -> dict[str, Any]:
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

    def note(self, task: Task, name: str) -> list[str]:
        """A line on how the task's prompts are read; none if there is no template."""
        known = self.tokenizer.chat_template
        return [how_read(self.chat, drawn(task, name, "train"))] if known else []

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


def through_template(tokenizer: Any, messages: Sequence[Mapping[str, str]], **how: Any) -> Any:
    """`apply_chat_template`, with a template's error on one line."""
    roles = ", ".join(str(m.get("role")) for m in messages)
    with reading(f"the tokenizer's chat template does not support messages from {roles}"):
        return tokenizer.apply_chat_template(messages, **how)


def drawn(task: Task, name: str, split: str) -> list[Prompt]:
    """Some of the task's prompts, always the same."""
    generator = torch.Generator().manual_seed(0)
    return [example.prompt for example in draw_examples(task, name, split, SAMPLE, generator)]


def encode(tokenizer: Any, text: str, *, add_special_tokens: bool = True) -> list[int]:
    """Token ids of a prompt; raises where the tokenizer does not have a character."""
    return encode_each(tokenizer, [text], add_special_tokens=add_special_tokens)[0]


def encode_each(
    tokenizer: Any, texts: list[str], *, add_special_tokens: bool = True
) -> list[list[int]]:
    """`encode` of each text, in one call of the tokenizer."""
    rows = tokenizer(texts, add_special_tokens=add_special_tokens)["input_ids"]
    for text, ids in zip(texts, rows, strict=True):
        alien = unknown_character(tokenizer, text, ids)
        if alien is not None:
            raise RlzooError(f"prompt {text!r}: the tokenizer has no token for {alien!r}")
        if not ids:
            raise RlzooError(f"prompt {text!r} is empty, so it has no tokens")
    return rows
