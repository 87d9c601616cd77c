"""Prompts as tokens: plain text unchanged, chat messages through the tokenizer's template."""

import re
from collections.abc import Iterable, Sequence
from functools import cache, cached_property, lru_cache, partial
from itertools import islice
from typing import Any

import torch

from rlzoo.errors import ModelError, RlzooError, in_short
from rlzoo.lm.templates import omits, prints_the_date, through_template, written
from rlzoo.mdp.rules import continued, draw_examples, token_name, unknown_character
from rlzoo.mdp.turns import MARK
from rlzoo.plugin.protocols import Task, Tokenizer

SAMPLE = 256  # prompts drawn to see what a task's are like

Prompt = str | list[dict[str, Any]]  # text, or chat messages {"role", "content", ...}


class PromptFormat:
    """How prompts become tokens: plain text unchanged, messages through the chat template.

    chat: "auto" does this; "always" treats plain text as a user's message; "never" joins the
    contents of messages, one per line. system: a system message to add to messages without one.
    """

    def __init__(self, tokenizer: Tokenizer, chat: str = "auto", system: str | None = None):
        self.tokenizer = tokenizer
        self.chat = chat
        self.system = system
        self._omits = cache(lambda roles: omits(tokenizer, roles))
        if chat == "always" and not tokenizer.chat_template:
            raise ModelError("model.chat is always, but the tokenizer has no chat template")

    def templated(self, prompt: Prompt) -> bool:
        """Whether the prompt goes through the chat template."""
        return self.chat == "always" or (self.chat == "auto" and not isinstance(prompt, str))

    def messages(self, prompt: Prompt) -> list[dict[str, Any]]:
        """The prompt as chat messages, whose contents are text."""
        messages = (
            [{"role": "user", "content": prompt}]
            if isinstance(prompt, str)
            else [{**m, "content": _text_of(m["content"])} for m in prompt]
        )
        if self.system and self.templated(prompt) and not _has_system(prompt):
            return [{"role": "system", "content": self.system}, *messages]
        return messages

    def text(self, prompt: Prompt) -> str:
        """The text that the policy reads."""
        if isinstance(prompt, str) and not self.templated(prompt):
            return prompt
        messages = self.messages(prompt)
        if not self.templated(prompt):
            return "\n".join(m["content"] for m in messages)
        if not self.tokenizer.chat_template:
            raise ModelError(
                "the prompts are chat messages, but the tokenizer has no chat template; "
                "model.chat=never joins them into one text"
            )
        _refuse_answered(prompt)
        if role := self._omits(tuple(m["role"] for m in messages)):
            raise ModelError(
                f"the chat template omits the text of a {role} message: {in_short(messages)}"
            )
        return through_template(
            self.tokenizer, messages, tokenize=False, add_generation_prompt=True
        )

    def examined(
        self, prompts: Sequence[Prompt], chat_args: object = None, key: str = "model.chat_args"
    ) -> list[str]:
        """Notes on how these prompts are read. Raises ModelError for a key without an effect, and
        for prompts that the template makes alike, or that are rendered already."""
        through = [p for p in prompts if self.templated(p)]
        plain = [p for p in prompts if not self.templated(p)]
        notes, special = [], written(self.tokenizer) if self.tokenizer.chat_template else []
        rendered = [p for p in prompts if any(s in self._contents(p) for s in special)]
        if self.tokenizer.chat_template and not (plain and 2 * len(rendered) > len(prompts)):
            notes.append(how_read(self.chat, prompts))
        elif plain and rendered:
            notes.append("prompts contain special tokens of the chat template, so they are "
                         "rendered already and used as they are")  # fmt: skip
        if rendered and 2 * len(rendered) <= len(prompts):
            few = f"{len(rendered)} of {len(prompts)} prompts contain special tokens of the chat"
            notes.append(f"{few} template, and the others do not: {in_short(rendered[0])}")
        for name, given in {"model.system": self.system, key: chat_args}.items():
            if given and not through:
                how = "; set model.chat=always" * bool(self.tokenizer.chat_template)
                raise ModelError(
                    f"{name} has no effect, because no prompt uses the chat template{how}"
                )
        with_system = sum(map(_has_system, through))
        if self.system and with_system == len(through) > 0:
            raise ModelError("model.system has no effect: all prompts have a system message")
        if self.system and with_system:
            notes.append(
                f"{with_system} of {len(through)} prompts have a system message of their own, "
                "which replaces model.system"
            )
        if through and 2 * len(rendered) > len(prompts):
            raise ModelError(
                "the prompts are rendered already, because they contain special tokens of the chat "
                f"template: {in_short(rendered[0])}; "
                + ("set model.chat=auto" if isinstance(rendered[0], str) else "give them as text")
            )
        texts = {*map(self.text, prompts)}  # which requires a template, too
        if len({*map(str, prompts)}) > 1 == len(texts):
            raise ModelError(
                f"the chat template makes all prompts {in_short(self.text(prompts[0]))}"
            )
        if through and prints_the_date(self.tokenizer):
            notes.append("the chat template prints today's date; it is fixed at 26 July 2024, so "
                         "that a prompt is the same every day")  # fmt: skip
        if plain and (after := affixes(self.tokenizer)[1]):
            notes.append(f"the tokenizer ends a text with {self._names(after)}; prompts are used "
                         "without it, since the policy continues them")  # fmt: skip
        ids = {self.tokenizer.eos_token_id, self.end_of_turn}
        ends = [self._names([i]) for i in ids if i is not None]
        last = [end for text in map(self.text, prompts) for end in ends if text.endswith(end)]
        if last:
            notes.append(
                f"{len(last)} of {len(prompts)} prompts end with {''.join({*last})}, which "
                "ends a response, so that the policy writes after the end"
            )
        return notes

    def _contents(self, prompt: Prompt) -> str:
        return "\n".join(m["content"] for m in self.messages(prompt) if m["role"] != "system")

    def _names(self, ids: Iterable[int]) -> str:
        return "".join(token_name(self.tokenizer, i) for i in ids)

    def encode(self, prompt: Prompt) -> list[int]:
        """Token ids; raises where the tokenizer does not have a character."""
        special = not self.templated(prompt)  # else the template has written them
        return encode(self.tokenizer, self.text(prompt), add_special_tokens=special)

    def tokens(self, text: str, follows: bool = False) -> list[int]:
        """Token ids of a text by the chat template, or of one that follows others; raises where
        the tokenizer does not have a character."""
        if not follows:
            return encode(self.tokenizer, text, add_special_tokens=False)
        ids = continued(self.tokenizer, text) if text else []
        if alien := unknown_character(self.tokenizer, text, ids):
            raise RlzooError(f"text {text!r}: the tokenizer has no token for {alien!r}")
        return ids

    def unread(self, prompts: Iterable[Prompt]) -> str | None:
        """A line on the fields of chat messages that leave no trace in what the policy reads."""
        chats = [prompt for prompt in islice(prompts, SAMPLE) if not isinstance(prompt, str)]
        lost = {name for chat in chats for m in chat for name in m} - {"role", "content"}
        if self.chat != "never" and self.tokenizer.chat_template:
            for chat in chats:
                names = lost & {name for message in chat for name in message}
                lost -= {name for name in names if self._reads(chat, name)}
        listed = ", ".join(sorted(lost))
        return f"the policy does not read these fields of messages: {listed}" if lost else None

    def _reads(self, chat: list[dict[str, Any]], field: str) -> bool:
        without = [{k: v for k, v in m.items() if k != field} for m in chat]
        try:
            text, other = (
                through_template(self.tokenizer, m, tokenize=False) for m in (chat, without)
            )
        except ModelError:  # the template requires the field
            return True
        return text != other

    @cached_property
    def end_of_turn(self) -> int | None:
        """The special token by which the chat template ends an assistant's message, if any."""
        after = self.tokenizer(self._turn[1], add_special_tokens=False)["input_ids"]
        added = self.tokenizer.added_tokens_decoder
        return next((i for i in after if i in added and added[i].special), None)

    @property
    def gap(self) -> str:
        """The space that the chat template writes before an assistant's message (Llama 2)."""
        return self._turn[0] if self._turn[0].isspace() else ""

    @cached_property
    def _turn(self) -> tuple[str, str]:
        """The texts that the chat template puts around an assistant's message, after a prompt."""
        if not self.tokenizer.chat_template:
            return "", ""
        messages = [{"role": "user", "content": "-"}, {"role": "assistant", "content": MARK}]
        render = partial(through_template, self.tokenizer, tokenize=False)
        try:
            prompt, whole = render(messages[:1], add_generation_prompt=True), render(messages)
        except ModelError:  # it does not take such a conversation
            return "", ""
        before, _, after = whole.partition(MARK)
        return before.removeprefix(prompt), after

    def ends(self, task: Task, name: str, eos_ids: Sequence[int]) -> list[int]:
        """`eos_ids`, with the template's end of turn where the task's prompts go through it."""
        through = self.tokenizer.chat_template and map(self.templated, drawn(task, name, "train"))
        end = self.end_of_turn if through and any(through) else None
        return sorted({*eos_ids, *([] if end is None else [end])})


def how_read(chat: str, prompts: Iterable[Prompt]) -> str:
    """A line on the effect of `model.chat` if the tokenizer has a template. Raises ModelError if
    a prompt has been answered."""
    if chat == "never":
        return "prompts are plain text, because model.chat=never disables the chat template"
    listed = list(prompts)
    for prompt in listed:
        _refuse_answered(prompt)
    if chat == "always" or not any(isinstance(prompt, str) for prompt in listed):
        return f"prompts are formatted with the chat template (model.chat={chat})"
    return (
        "prompts are plain text, although the tokenizer has a chat template; a chat model needs "
        "model.chat=always (model.chat=never also disables this note)"
    )


def _refuse_answered(prompt: Prompt) -> None:
    """Raise ModelError for messages that end with the assistant's: an answer, or the beginning of
    one. The template would close it and let the policy speak again."""
    if not isinstance(prompt, str) and prompt[-1]["role"] == "assistant":
        raise ModelError(
            f"a prompt ends with an assistant's message: {in_short(prompt[-1]['content'])}; remove "
            "it, or give the prompt as text if the policy must continue it"
        )


def _has_system(prompt: Prompt) -> bool:
    return not isinstance(prompt, str) and any(m["role"] == "system" for m in prompt)


def _text_of(content: Any) -> str:
    """A message's content, which may be a list of parts of text."""
    if not isinstance(content, list | tuple):
        return content
    if any(part.get("type") != "text" for part in content):
        raise ModelError(f"a message has content other than text: {in_short(content)}")
    return "".join(part["text"] for part in content)


def drawn(task: Task, name: str, split: str) -> list[Prompt]:
    """The prompts of some of the task's examples, always the same."""
    generator = torch.Generator().manual_seed(0)
    return [e.prompt for e in draw_examples(task, name, split, SAMPLE, generator)]


def encode(tokenizer: Tokenizer, text: str, *, add_special_tokens: bool = True) -> list[int]:
    """Token ids of a prompt; raises where the tokenizer does not have a character.

    add_special_tokens: with the tokens that the tokenizer puts before a text (BOS), once, even if
    the text has them; without those that it puts after one (EOS), since a prompt continues.
    """
    if re.search("[\ud800-\udfff]", text):
        raise RlzooError(
            f"prompt {text!r}: contains bytes or half characters that are not Unicode; in a "
            "terminal, set a UTF-8 locale such as LC_ALL=C.UTF-8"
        )
    ids = tokenizer(text, add_special_tokens=add_special_tokens)["input_ids"]
    if alien := unknown_character(tokenizer, text, ids):
        raise RlzooError(
            f"prompt {text!r}: the tokenizer has no token for {alien!r}; use another model "
            "(`rlzoo plugins models`)"
        )
    if add_special_tokens and any(affixes(tokenizer)):
        ids = opened(tokenizer, ids)
    if not ids:
        raise RlzooError(f"prompt {text!r} is empty, so it has no tokens")
    return ids


@lru_cache(maxsize=8)
def affixes(tokenizer: Tokenizer) -> tuple[list[int], list[int]]:
    """The special tokens that the tokenizer puts before a text, and after it."""
    for text in "a1+.":  # one that it has
        ids, whole = (tokenizer(text, add_special_tokens=s)["input_ids"] for s in (False, True))
        for start in range(len(whole) - len(ids) + 1 if ids else 0):
            if whole[start : start + len(ids)] == ids and tokenizer.unk_token_id not in ids:
                return whole[:start], whole[start + len(ids) :]
    return [], []


def opened(tokenizer: Tokenizer, ids: list[int]) -> list[int]:
    """A text's ids with what the tokenizer puts before it once, and without what it puts after."""
    before, after = affixes(tokenizer)
    if after and ids[-len(after) :] == after:
        ids = ids[: -len(after)]
    n = len(before)
    while n and ids[n : 2 * n] == before:
        ids = ids[n:]
    return ids
