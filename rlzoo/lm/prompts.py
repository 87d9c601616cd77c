"""How a prompt becomes tokens: plain text as it is, chat messages by the tokenizer's template."""

from typing import Any

from rlzoo.errors import ModelError, RlzooError
from rlzoo.mdp.rules import unknown_character

REMEMBERED = 2**16  # prompts whose ids are kept, since most come again

Prompt = str | list[dict[str, str]]  # text, or chat messages {"role", "content"}


class PromptFormat:
    """How prompts are read: plain text as it is, messages by the tokenizer's chat template.

    chat: "auto" so; "always" takes plain text for a user's message; "never" joins the contents of
    messages, a line each. system: a system message put before what goes through the template.
    """

    def __init__(self, tokenizer: Any, chat: str = "auto", system: str | None = None):
        self.tokenizer = tokenizer
        self.chat = chat
        self.system = system
        self._encoded: dict[tuple[str, bool], list[int]] = {}
        if chat == "always" and not tokenizer.chat_template:
            raise ModelError("model.chat: always, and the tokenizer has no chat template")

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
        """What the policy reads."""
        if not self.templated(prompt):
            return prompt if isinstance(prompt, str) else "\n".join(m["content"] for m in prompt)
        if not self.tokenizer.chat_template:
            raise ModelError(
                "the prompts are chat messages, and the tokenizer has no chat template; "
                "model.chat=never joins them to a text"
            )
        return self.tokenizer.apply_chat_template(
            self.messages(prompt), tokenize=False, add_generation_prompt=True
        )

    def encode(self, prompt: Prompt) -> list[int]:
        """Token ids; raises where the tokenizer does not know a character."""
        # A template writes the special tokens itself.
        key = (self.text(prompt), not self.templated(prompt))
        if key not in self._encoded:
            if len(self._encoded) >= REMEMBERED:
                self._encoded.clear()
            self._encoded[key] = encode(self.tokenizer, key[0], add_special_tokens=key[1])
        return self._encoded[key]


def encode(tokenizer: Any, text: str, *, add_special_tokens: bool = True) -> list[int]:
    """Token ids of a prompt; raises where the tokenizer does not know a character."""
    ids = tokenizer(text, add_special_tokens=add_special_tokens)["input_ids"]
    alien = unknown_character(tokenizer, text, ids)
    if alien is not None:
        raise RlzooError(f"prompt {text!r}: the tokenizer does not know {alien!r}")
    if not ids:
        raise RlzooError(f"prompt {text!r} is empty: it has no token")
    return ids
