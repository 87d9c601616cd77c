"""Python functions as tools: a call is read from the policy's turn, runs in a process of its own
with a time limit, and its result is the environment's answer. A broken call is answered, too."""

import ast
import inspect
import json
import re
import typing
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from rlzoo.errors import first_line, nearest
from rlzoo_zoo.json_text import placed_objects
from rlzoo_zoo.rewards.worker import Worker

LONGEST = 4000  # characters of a turn in which calls are read
REMEMBERED = 4096  # results
MOST = 8  # calls in one turn
# A `</tool_call>` in a string is a part of it.
JSON_CALL = re.compile(r'<tool_call>((?:"(?:[^"\\]|\\.)*"|.)*?)(?:</tool_call>|\Z)', re.DOTALL)
FENCE = re.compile(r"\s*(?:```\w*\s*)?")
PYTHON_CALL = re.compile(r"\[([^\[\]\n]*)\]")
STOPS = {"json": "</tool_call>", "python": "]"}
WORKER = Worker("rlzoo_zoo.tasks.tool_worker", "rlzoo")
UNREADABLE = (ValueError, TypeError, SyntaxError, RecursionError, MemoryError)


class Call(NamedTuple):
    name: str
    positional: tuple[Any, ...]
    named: dict[str, Any]


class Tools:
    """Tools of a conversation, from functions with types and a docstring with `Args:`.

    form: "json", `<tool_call>{"name": ..., "arguments": {...}}</tool_call>`, which chat models are
    trained on, or "python", `[name("text", 2)]`, which is short. seconds: the limit of one call.
    characters: results are cut there. The same call must give the same result: results are kept.
    Raises ValueError where a function has no types, no docstring, or is not at the top of a file.
    """

    def __init__(
        self,
        functions: Sequence[Callable[..., Any]],
        *,
        form: str = "json",
        seconds: float = 2.0,
        characters: int = 400,
    ):
        self.functions = {f.__name__: f for f in functions}
        self.form, self.seconds, self.characters = form, seconds, characters
        self.stops = (STOPS[form],)
        self.schemas = [schema(f) for f in functions]
        self.known: OrderedDict[str, str] = OrderedDict()

    def system(self) -> str:
        """The system message that declares the tools."""
        if self.form == "python":
            lines = [declaration(f) for f in self.functions.values()]
            return "You may call these functions as [name(arguments)]:\n" + "\n".join(lines)
        listed = "\n".join(map(json.dumps, self.schemas))
        return (
            "You may call functions to answer. Their signatures are within <tools></tools>:\n"
            f"<tools>\n{listed}\n</tools>\nFor each call write a JSON object with the function's "
            "name and its arguments within <tool_call></tool_call>:\n"
            '<tool_call>\n{"name": <name>, "arguments": <arguments>}\n</tool_call>'
        )

    def answer(self, turn: str) -> str | None:
        """The results of a turn's calls, a line each; None where it has no call."""
        texts = self.calls(turn)
        if not texts:
            return None
        if len(turn) > LONGEST:
            return f"error: a turn with calls has at most {LONGEST} characters"
        return "\n".join(self.result(text) for text in texts[:MOST])

    def calls(self, turn: str) -> list[str]:
        """The texts of a turn's calls, readable or not."""
        if self.form == "json":
            return JSON_CALL.findall(turn)
        return PYTHON_CALL.findall(turn)[-1:] if turn.rstrip().endswith("]") else []

    def result(self, text: str) -> str:
        """The result of one call, or a line on its fault."""
        try:
            call = read_json(text) if self.form == "json" else read_python(text)
            function = self.functions.get(call.name)
            if function is None:
                near = nearest(call.name, self.functions)
                raise ValueError(f"there is no function {call.name!r}{near}")
            arguments = bound(function, call)
        except UNREADABLE as error:
            return f"error: {first_line(error)}"[: self.characters]
        return self.run(call.name, arguments)

    def run(self, name: str, arguments: dict[str, Any]) -> str:
        function = self.functions[name]
        job = {
            "module": function.__module__,
            "file": inspect.getfile(function),
            "name": name,
            "arguments": arguments,
            "timeout": self.seconds,
            "wall": 2 * self.seconds,
            "characters": self.characters,
        }
        key = json.dumps([name, arguments], sort_keys=True)
        if key not in self.known:
            with WORKER.lock:
                reply = json.loads(WORKER.reply(json.dumps(job)))
            self.known[key] = reply.get("text", f"error: no result within {self.seconds:g} s")
            if len(self.known) > REMEMBERED:
                self.known.popitem(last=False)
        return self.known[key]


def schema(function: Callable[..., Any]) -> dict[str, Any]:
    """The JSON schema of a function, as chat templates take it."""
    from transformers.utils import get_json_schema
    from transformers.utils.chat_template_utils import (
        DocstringParsingException,
        TypeHintParsingException,
    )

    if "." in function.__qualname__:
        raise ValueError(f"tool {function.__qualname__!r} must be at the top of its file")
    try:
        return get_json_schema(function)
    except (DocstringParsingException, TypeHintParsingException) as error:
        raise ValueError(f"tool {function.__name__!r}: {first_line(error)}") from None


def declaration(function: Callable[..., Any]) -> str:
    """A function in one line: its signature and the first line of its docstring."""
    line = (function.__doc__ or "").strip().splitlines()[0]
    return f"{function.__name__}{inspect.signature(function)}: {line}"


def read_json(text: str) -> Call:
    """A call as one JSON object, in a code fence or bare: `name` with `arguments`, or `parameters`
    as in Llama's templates, an object or its JSON text; or these within `function`."""
    found = list(placed_objects(text))
    if len(found) != 1 or not all(map(FENCE.fullmatch, found[0][1:])):
        raise ValueError("a call must be one JSON object with name and arguments")
    call = found[0][0]
    if isinstance(call.get("function"), dict):
        call = call["function"]
    given = [key for key in ("arguments", "parameters") if key in call]
    unknown = call.keys() - {"id", "type", "name", *given}
    if not isinstance(call.get("name"), str) or len(given) > 1 or unknown:
        raise ValueError(f"a call must have name and arguments. Got {', '.join(call)[:60]}")
    arguments = call[given[0]] if given else {}
    if isinstance(arguments, str):
        arguments = json.loads(arguments)
    if not isinstance(arguments, dict):
        raise ValueError("arguments must be a JSON object")
    return Call(call["name"], (), arguments)


def read_python(text: str) -> Call:
    """A call whose arguments are literals; nothing is executed."""
    node = ast.parse(text.strip(), mode="eval").body
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
        raise ValueError("a call must have the form [name(arguments)]")
    named = {word.arg: ast.literal_eval(word.value) for word in node.keywords if word.arg}
    if len(named) < len(node.keywords):
        raise ValueError("an argument is given twice or without its name")
    return Call(node.func.id, tuple(map(ast.literal_eval, node.args)), named)


def bound(function: Callable[..., Any], call: Call) -> dict[str, Any]:
    """A call's arguments by name, of the types that the function declares."""
    found = inspect.signature(function).bind(*call.positional, **call.named).arguments
    hints = typing.get_type_hints(function)
    for name, value in found.items():
        kind = typing.get_origin(hints[name]) or hints[name]
        fits = not isinstance(kind, type) or isinstance(value, kind)
        fits = fits or (kind is float and isinstance(value, int))
        if not fits or (isinstance(value, bool) and kind in (int, float)):
            raise TypeError(f"{name} must be {kind.__name__}. Got {value!r:.40}")
    json.dumps(found)
    return dict(found)
