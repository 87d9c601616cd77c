"""What the requests of `sampler=sessions` may contain: each field is obeyed, changes nothing, or is
refused by its name."""

import json
from collections.abc import Collection, Mapping
from typing import Any

from rlzoo.errors import nearest
from rlzoo_zoo.messages import refuse_half_characters

DEPTH = 100  # of lists and objects in a request
MESSAGES = 2000  # of a request
# Fields of a completion: those that are obeyed, that change nothing, and that have only these
# values. The recipe's sampling settings join the last.
OBEYED = ("messages", "tools", "max_tokens", "max_completion_tokens", "continue_final_message")
HARMLESS = ("model", "user", "metadata", "safety_identifier", "prompt_cache_key", "service_tier")
FIELDS = ("role", "content", "tool_calls", "tool_call_id", "name", "id")  # of a message
REASONING = ("reasoning_content", "reasoning", "thinking")
FIXED: dict[str, tuple[Any, ...]] = {
    "stream": (False,),
    "n": (1,),
    "stop": ([], ""),
    "logprobs": (True, False),
    "top_logprobs": (0,),
    "return_token_ids": (True, False),
    "seed": (),
    "presence_penalty": (0,),
    "frequency_penalty": (0,),
    "repetition_penalty": (1,),
    "min_p": (0,),
    "logit_bias": ({},),
    "response_format": ({"type": "text"},),
    "tool_choice": ("auto",),
    "parallel_tool_calls": (True,),
    "modalities": (["text"],),
    "store": (False,),
    "add_generation_prompt": (True,),
}


class Refused(Exception):
    """A request that gets a status and a line, with the fields of starlette's HTTPException."""

    headers = None

    def __init__(self, status: int, text: str, kind: str = "invalid_request_error"):
        super().__init__(text)
        self.status_code, self.detail, self.kind = status, text, kind


def parsed(text: str | bytes) -> Any:
    """JSON of Unicode texts, at most `DEPTH` deep; raises ValueError."""
    try:
        found = json.loads(text, parse_constant=_no_constant, object_pairs_hook=_once)
        refuse_half_characters(found)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    level = [found]
    for _ in range(DEPTH):
        inside = [x.values() if isinstance(x, dict) else x for x in level
                  if isinstance(x, dict | list)]  # fmt: skip
        if not (level := [x for one in inside for x in one]):
            return found
    raise ValueError("it is nested too deeply")


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not a number")


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a name occurs twice in an object")
    return found


def given(body: Mapping[str, Any], known: Collection[str]) -> dict[str, Any]:
    """The fields of a request that are not null; raises Refused for one that is not known."""
    found = {name: value for name, value in body.items() if value is not None}
    for name in found:
        if name not in known:
            raise Refused(400, f"{name[:60]} is not supported{nearest(name[:60], known)}")
    return found


def completion(body: dict[str, Any], settings: dict[str, tuple[Any, ...]]) -> dict[str, Any]:
    """The parts of a request for a completion that count; raises Refused. `settings`: the values
    that the recipe's sampling settings may have."""
    fixed = FIXED | settings
    found = given(body, (*OBEYED, *HARMLESS, *fixed))
    for name, values in fixed.items():
        if name in found and not any(same(found[name], x) for x in values):
            only = " or ".join(json.dumps(x) for x in values)
            which = f"must be {only}" if values else "is not supported"
            raise Refused(400, f"{name} {which}{', as in the recipe' * (name in settings)}")
    messages, tools = found.get("messages"), found.get("tools")
    if not isinstance(messages, list) or not 0 < len(messages) <= MESSAGES:
        raise Refused(400, f"messages must be a list of 1 to {MESSAGES}")
    limits = {n: found[n] for n in ("max_tokens", "max_completion_tokens") if n in found}
    for name, most in limits.items():
        if not isinstance(most, int) or isinstance(most, bool) or most < 1:
            raise Refused(400, f"{name} must be an integer of at least 1")
    if tools is not None and not isinstance(tools, list):
        raise Refused(400, "tools must be a list")
    messages = [message(m) for m in messages]
    own = messages[-1]["role"] == "assistant"
    goes_on = found.get("continue_final_message", None if own else False)
    if not isinstance(goes_on, bool) or goes_on > own:
        raise Refused(400, "continue_final_message must be true or false where the last message is "
                           "the assistant's: whether the reply continues it")  # fmt: skip
    most = min(limits.values(), default=None)
    return {"messages": messages, "most": most, "tools": tools or None, "goes_on": goes_on}


def unread(messages: Collection[Mapping[str, Any]], template: str) -> str | None:
    """A field of the messages that the template does not contain, so that it has no effect."""
    filled = (n for m in messages for n, x in m.items() if x not in (None, "", [], {}))
    for name in (n for n in filled if n not in FIELDS):
        names = REASONING if name in REASONING else (name,)  # transformers copies these
        if not any(n in template for n in names):
            return name
    return None


def same(x: Any, y: Any) -> bool:
    """Whether two values of JSON are equal, where true is not 1."""
    return x == y and isinstance(x, bool) == isinstance(y, bool)


def message(given: Any) -> dict[str, Any]:
    """A message as a chat template takes it: its fields that are not null, its content as one text,
    and arguments of calls as objects; raises Refused."""
    if not isinstance(given, dict) or not isinstance(given.get("role"), str):
        raise Refused(400, "a message must have a role and a content")
    found = {name: value for name, value in given.items() if value is not None}
    calls = found.pop("tool_calls", [])
    if not isinstance(calls, list):
        raise Refused(400, "tool_calls must be a list")
    calls = {"tool_calls": [tool_call(c) for c in calls]} if calls else {}
    content = found.get("content", "" if given["role"] == "assistant" else None)
    if isinstance(content, list):
        texts = [_text(part) for part in content]
        content = "".join(map(str, texts)) if all(isinstance(t, str) for t in texts) else None
    if "content" not in found and calls:
        content = None  # templates write such a message in another way
    elif not isinstance(content, str):
        raise Refused(400, "the content of a message must be a string, or parts of type text")
    return found | {"content": content} | calls


def _text(part: Any) -> Any:
    text = isinstance(part, dict) and part.get("type", "text") == "text"
    return part.get("text") if text else None


def tool_call(given: Any) -> dict[str, Any]:
    """A call as chat templates take it, with arguments as an object; raises Refused."""
    try:
        function = dict(given["function"])
        name, arguments = function["name"], function["arguments"]
        arguments = parsed(arguments) if isinstance(arguments, str) else arguments
    except ValueError as error:
        raise Refused(400, f"the arguments of a tool call are not JSON: {error}") from None
    except (LookupError, TypeError):
        name = arguments = None
    if not isinstance(name, str) or not isinstance(arguments, dict):
        raise Refused(400, "a tool call must have a function with a name, and JSON arguments")
    return {"type": "function", **given, "function": {**function, "arguments": arguments}}


def gist(message: dict[str, Any]) -> tuple[Any, ...]:
    """What an agent must repeat of a message: clients drop other fields of a reply."""
    calls = [c["function"] for c in message.get("tool_calls", ())]
    named = [(call["name"], call["arguments"]) for call in calls]
    return message["role"], message["content"] or "", named


def reward(body: dict[str, Any]) -> float | None:
    value = given(body, ("reward",)).get("reward")
    if "reward" not in body:
        raise Refused(400, "reward is missing; null leaves the score to the task")
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < 1e9:
        raise Refused(400, "reward must be a finite number")
    return float(value)
