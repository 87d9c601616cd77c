"""Chat messages and columns, as the world's data sets write them.

A message is {"role", "content"} and what else it has: `tool_calls`, `name`, `tool_call_id`,
`reasoning_content`, ... Tools that a conversation declares are in the field `tools` of its first
message. Texts that hold JSON or a Python literal are parsed, never executed.
"""

import ast
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from rlzoo.errors import in_short, nearest

Message = dict[str, Any]
Prompt = str | list[Message]

ROLES = {
    "human": "user", "gpt": "assistant", "chatgpt": "assistant", "model": "assistant",
    "observation": "tool", "function": "tool", "tool_response": "tool", "function_response": "tool",
}  # fmt: skip
CALLS = ("function_call", "tool_call")  # roles of the assistant's turns that are calls
NAMES = ("role", "from", "content", "value")
NEEDS = "must be a string, or messages with role and content"
MEDIA = ("image", "images", "video", "videos", "audio", "audios")  # columns that are not text
TEXTS = ("text", "input_text", "output_text")
WRITTEN = re.compile(r"""\s*(?:array\()?\[\s*\{\s*\\*["'](?:role|from|content|value)\\*["']""")
LITERAL = re.compile(r"\s*[\[{]\s*[\[{']")


def messages_of(value: Any) -> list[Message]:
    """Chat messages, checked, in the form of chat templates; raises ValueError.

    value: a list of messages with role and content (text, or parts of text, which are joined), or
        from and value (ShareGPT), or one such message, or a text that holds these as JSON.
    Calls of tools get arguments that are mappings. Fields that are null are left out.
    """
    found = from_json(value)
    found = [found] if isinstance(found, Mapping) else found
    if not isinstance(found, list) or not found or not all(isinstance(m, Mapping) for m in found):
        raise ValueError(f"{NEEDS}. Got {in_short(value)}")
    return [_message(m) for m in found]


def prompt_of(value: Any, tools: Any = None) -> Prompt:
    """A prompt: text, or messages, with the tools that it declares; raises ValueError."""
    if isinstance(value, str) and not _holds_messages(value):
        return value
    messages = messages_of(value)
    if declared := tools_of(tools):
        messages[0] = {**messages[0], "tools": declared}
    return messages


def tools_of(value: Any) -> list[dict[str, Any]]:
    """Schemas of tools, as chat templates take them, from a list or its JSON; raises ValueError."""
    found = _without_nulls(from_json(value)) or []
    found = [found] if isinstance(found, dict) else found
    if not isinstance(found, list) or not all(isinstance(tool, dict) for tool in found):
        raise ValueError(f"has tools that are not a list of schemas. Got {in_short(value)}")
    return [
        {"type": "function", "function": t} if "name" in t and "function" not in t else t
        for t in found
    ]


def from_json(value: Any) -> Any:
    """The value of a text that is JSON, once or twice encoded, or a Python literal; else the text.
    Raises ValueError on half a character."""
    for _ in range(3):
        if not isinstance(value, str) or value.lstrip()[:1] not in ("[", "{", '"'):
            return value
        try:
            found = json.loads(value)
        except (ValueError, RecursionError):
            if not LITERAL.match(value):
                return value
            try:
                found = ast.literal_eval(value.strip())
            except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
                return value
        if "\\ud" in value.lower():
            refuse_half_characters(found)
        value = found
    return value


def refuse_half_characters(value: Any) -> None:
    """Raise ValueError at a lone surrogate, which JSON may write and no tokenizer reads."""
    try:
        json.dumps(value, ensure_ascii=False, default=str).encode()
    except UnicodeEncodeError:
        raise ValueError("half a character (a lone surrogate)") from None


def column(row: Mapping[str, Any], name: str) -> Any:
    """row[name], or what is at a path of names and numbers: `reward_model.ground_truth`,
    `answers.0`. Texts of JSON on the way are parsed. None where a value on it is null; raises
    KeyError."""
    if name in row:
        return row[name]
    for dot in reversed([m.start() for m in re.finditer(r"\.", name)]):
        if name[:dot] in row:
            return _inside(row[name[:dot]], name[dot + 1 :])
    raise KeyError(name)


def _inside(value: Any, path: str) -> Any:
    value = from_json(value)
    if value is None:
        return None
    if isinstance(value, Mapping):
        return column(value, path)
    head, _, rest = path.partition(".")
    if not isinstance(value, list) or not re.fullmatch(r"-?\d{1,9}", head):
        raise KeyError(path)
    if not -len(value) <= int(head) < len(value):
        return None
    return _inside(value[int(head)], rest) if rest else value[int(head)]


def no_column(name: str, row: Mapping[str, Any]) -> str:
    """An error's words: which columns there are, those within mappings too."""
    there = list(_names(row))
    ends = [n for n in there if n.endswith(f".{name}")]
    near = f"; did you mean {ends[0]!r}?" if ends else nearest(name, there)
    listed = ", ".join(there[:20]) + ", ..." * (len(there) > 20)
    return f"there is no column {name!r}{near} (available: {listed or 'none'})"


def _names(row: Mapping[str, Any]) -> Iterator[str]:
    for name, value in row.items():
        yield name
        if isinstance(value, Mapping):
            yield from (f"{name}.{inner}" for inner in value)


def _holds_messages(text: str) -> bool:
    """Whether a text is messages written as JSON; raises ValueError where they are damaged."""
    found = from_json(text)
    if isinstance(found, list):
        return any(isinstance(m, Mapping) and _is_message(m) for m in found)
    if WRITTEN.match(text.lstrip(' "')):
        raise ValueError(f"looks like messages, but is not JSON. Got {in_short(text)}")
    return False


def _is_message(value: Mapping[str, Any]) -> bool:
    return any({role, text} <= value.keys() for role, text in (NAMES[::2], NAMES[1::2]))


def _message(given: Mapping[str, Any]) -> Message:
    role, content = given.get("role", given.get("from")), given.get("content", given.get("value"))
    rest = {k: v for k, v in _without_nulls(given).items() if k not in NAMES and v != ""}
    if not isinstance(role, str):
        raise ValueError(f"{NEEDS}. Got {in_short(dict(given))}")
    role = role.lower()  # `User`, `Human`: a template would print them so
    if isinstance(content, list):
        content = _parts(content, rest)
    if role in CALLS:
        rest["tool_calls"], content = from_json(content), ""
    elif "function_call" in rest:  # how one call was written before there were several
        rest["tool_calls"] = rest.pop("function_call")
    if "tool_calls" in rest:
        calls = from_json(rest["tool_calls"])
        rest["tool_calls"] = [_call(c) for c in (calls if isinstance(calls, list) else [calls])]
        content = "" if content is None else content
    if "tools" in rest:
        rest["tools"] = tools_of(rest["tools"])
    if not isinstance(content, str):
        raise ValueError(f"{NEEDS}, as text. Got {in_short(dict(given))}")
    role = "assistant" if role in CALLS else ROLES.get(role, role)
    return {"role": role, "content": content, **rest}


def _parts(content: Any, rest: dict[str, Any]) -> Any:
    """The text of a content of parts; its reasoning and calls go into `rest`."""
    texts = []
    for part in content:
        kind = part.get("type", "text") if isinstance(part, Mapping) else type(part).__name__
        value = part.get("text", part.get("value")) if isinstance(part, Mapping) else None
        if kind in CALLS:
            rest.setdefault("tool_calls", []).append(from_json(value))
        elif kind in TEXTS and isinstance(value, str):
            texts.append(value)
        elif kind == "reasoning" and isinstance(value, str):
            rest["reasoning_content"] = rest.get("reasoning_content", "") + value
        else:
            raise ValueError(f"has a part of type {kind!r}; only text is read")
    return "".join(texts)


def _call(given: Any) -> dict[str, Any]:
    """A call as chat templates take it: its arguments are a mapping, not its JSON."""
    about = given.get("function") if isinstance(given, Mapping) else None
    about = given if about is None else about
    name = about.get("name") if isinstance(about, Mapping) else None
    if not isinstance(name, str):
        raise ValueError(f"has a tool call without a function and its name. Got {in_short(given)}")
    arguments = from_json(about.get("arguments", about.get("parameters")) or {})
    if not isinstance(arguments, Mapping):
        raise ValueError(
            f"has a tool call whose arguments are not an object. Got {in_short(arguments)}"
        )
    found = {"type": "function", "function": {"name": name, "arguments": dict(arguments)}}
    return found | ({"id": given["id"]} if given.get("id") else {})


def _without_nulls(value: Any) -> Any:
    """Tables give each mapping of a column the keys of all, null where it lacks one."""
    if isinstance(value, Mapping):
        return {k: _without_nulls(v) for k, v in value.items() if v is not None}
    return [_without_nulls(v) for v in value] if isinstance(value, list) else value
