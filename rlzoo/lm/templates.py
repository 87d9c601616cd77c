"""A tokenizer's chat template: its arguments, the date that it prints, and what it leaves out.

A template is a model's own program in Jinja, so its behaviour is found out by rendering marks.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cache, partial
from inspect import signature
from typing import Any

from omegaconf import OmegaConf

from rlzoo.errors import ModelError, nearest
from rlzoo.lm.weights import reading
from rlzoo.mdp.turns import MARK
from rlzoo.plugin.protocols import Tokenizer

# A template that prints today's date would change all prompts overnight, between a run and its
# resumption, or between two rows of a comparison. This is Llama 3's own date without a clock.
DATE = datetime(2024, 7, 26)
CODES = [*"aAwdbBmyYHIpMSfjUWcxXGuVTDFehR", *(f"-{c}" for c in "dmyHIMSjUW")]  # of strftime


def through_template(
    tokenizer: Tokenizer, messages: Sequence[Mapping[str, Any]], **how: Any
) -> Any:
    """`apply_chat_template` with the tools that the messages declare (a field `tools`), and with a
    template's error on one line."""
    if tools := next((m["tools"] for m in messages if m.get("tools")), None):
        how["tools"] = tools
    roles = ", ".join(str(m.get("role")) for m in messages)
    with reading(f"the tokenizer's chat template does not support messages from {roles}"):
        return tokenizer.apply_chat_template(messages, **how)


def bind(tokenizer: Any, arguments: Mapping[str, Any] | None, key: str = "model.chat_args") -> Any:
    """The tokenizer, which from now on renders its template with `arguments` and the fixed DATE.

    Raises ModelError for an argument that the template does not read."""
    given: Any = OmegaConf.to_container(OmegaConf.create(dict(arguments or {})))
    if given:
        known = [] if not tokenizer.chat_template else variables(tokenizer)
        for name in given:
            if name not in known:
                why = f"the template reads {', '.join(known)}" if known else "it reads none"
                why = why if tokenizer.chat_template else "the tokenizer has no chat template"
                where = f"{key} {name}" if key.startswith("--") else f"{key}.{name}"
                raise ModelError(
                    f"{where}: not an argument of the chat template{nearest(name, known)} ({why})"
                )
    if tokenizer.chat_template:
        tokenizer.apply_chat_template = partial(_render, tokenizer, given)
    return tokenizer


def variables(tokenizer: Any) -> list[str]:
    """The names that the chat template reads and its caller may choose."""
    from jinja2 import meta
    from transformers.utils import chat_template_utils

    template = tokenizer.get_chat_template()
    with reading("the tokenizer's chat template is not valid"):
        environment = chat_template_utils._compile_jinja_template(template).environment
        read = meta.find_undeclared_variables(environment.parse(template))
    ours = {"messages", "strftime_now", *signature(type(tokenizer).apply_chat_template).parameters}
    return sorted(read - environment.globals.keys() - ours - tokenizer.special_tokens_map.keys())


def _render(
    tokenizer: Any, given: Mapping[str, Any], messages: Any, *, chat_template: str | None = None,
    **how: Any,
) -> Any:  # fmt: skip
    chosen = tokenizer.get_chat_template(chat_template, how.get("tools"))
    render = type(tokenizer).apply_chat_template  # not what `bind` put in its place
    return render(tokenizer, messages, chat_template=_on(chosen), **{**given, **how})


@cache
def _on(template: str, day: datetime = DATE) -> str:
    """The template as it is on a day: a macro replaces transformers' `strftime_now`, whatever the
    format is (values of a caller cannot: they must be data)."""
    if "strftime_now" not in template:
        return template
    codes = "".join(f" | replace({'%' + c!r}, {day.strftime('%' + c)!r})" for c in CODES)
    return f"{{% macro strftime_now(format) %}}{{{{ format{codes} }}}}{{% endmacro %}}\n{template}"


def _probe(render: Any, content: str, **how: Any) -> str:
    """A user's message as the template renders it; empty if it raises an error."""
    try:
        with reading("the template"):
            return render(
                [{"role": "user", "content": content}], tokenize=False, add_generation_prompt=True,
                **how,
            )  # fmt: skip
    except ModelError:
        return ""


def prints_the_date(tokenizer: Tokenizer) -> bool:
    """Whether the template would print today's date."""
    render, other = tokenizer.apply_chat_template, datetime(1999, 12, 31)
    template = _on(tokenizer.get_chat_template(), other)
    return _probe(render, "-") != _probe(render, "-", chat_template=template)


def omits(tokenizer: Tokenizer, roles: Sequence[str]) -> str | None:
    """The role of a message that the template leaves out of a prompt with these roles; None if it
    renders all of them, or cannot render such a prompt by itself."""
    marks = [f"{MARK}:{i}." for i in range(len(roles))]
    messages = [{"role": r, "content": mark} for r, mark in zip(roles, marks, strict=True)]
    try:
        text = through_template(tokenizer, messages, tokenize=False, add_generation_prompt=True)
    except ModelError:
        return None
    return next((r for r, mark in zip(roles, marks, strict=True) if mark not in text), None)


def written(tokenizer: Any) -> list[str]:
    """The special tokens that the template itself writes around a user's message."""
    text = _probe(tokenizer.apply_chat_template, MARK)
    special = (token.content for token in tokenizer.added_tokens_decoder.values() if token.special)
    return [token for token in special if token in text]
