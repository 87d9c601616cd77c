"""A component: a function whose signature declares what it needs and which options it has.

    def gae(rewards, values, response_mask, *, lam: Annotated[float, Range(0, 1)] = 0.95)
            `------- needs: no defaults ------'     `------ options: typed, with defaults ----'

The same `Option` checks the core's own recipe keys. Torch is imported by a call, not here.
"""

import functools
import inspect
import json
import re
import sys
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from rlzoo.errors import ComponentError, nearest
from rlzoo.plugin.options import Option

Function = Callable[..., Any]


class Example(NamedTuple):
    """A prompt, its correct answer, and its index in the data set (-1 if there is none)."""

    prompt: str
    answer: Any = None
    index: int = -1  # type: ignore[assignment]


@dataclass(frozen=True)
class Kind:
    """A kind of component: its hook `register_<plural>`, its recipe key, the latest stage whose
    columns exist when one is called, and what it maps."""

    plural: str
    singular: str
    key: str
    stage: str
    what: str


_ALL = (
    Kind("estimators", "estimator", "estimator", "estimate",
         "columns -> advantages (B, T)[, returns]"),
    Kind("kl_penalties", "kl_penalty", "kl", "update",
         "log_probs, ref_log_probs -> penalty (B, T)"),
    Kind("policy_losses", "policy_loss", "policy_loss", "update",
         "log_probs, ... -> loss (B, T)[, metrics]"),
    Kind("value_losses", "value_loss", "value_loss", "update",
         "value_preds, ... -> loss (B, T)[, metrics]"),
    Kind("aggregations", "aggregation", "aggregation", "update", "response_mask -> weights (B, T)"),
    Kind("columns", "column", "columns", "column", "columns -> the column of the function's name"),
    Kind("tasks", "task", "task", "rollout",
         "classes with `draw`, `score`, perhaps `is_correct`, ..."),
    Kind("rewards", "reward", "rewards", "score",
         "columns -> outcome (B,) or score per token (B, T)"),
    Kind("samplers", "sampler", "sampler", "rollout",
         "policy, prompt_ids, ... -> tokens and log-probs"),
    Kind("loggers", "logger", "loggers", "update", "classes with `log(metrics)` and `close()`"),
    Kind("executors", "executor", "--on", "rollout", "classes with `capacity` and `run`"),
)  # fmt: skip
KINDS: dict[str, Kind] = {kind.plural: kind for kind in _ALL}


def plain(text: str) -> str:
    """In lower case, with an underscore for blanks and hyphens, as words of others are compared."""
    return re.sub(r"[\s-]+", "_", text.strip().lower())


OBJECTS = ("tasks", "loggers", "executors")  # kinds of which a component makes an object
# A call of such a function computes nothing.
NO_RESULT = (inspect.iscoroutinefunction, inspect.isgeneratorfunction, inspect.isasyncgenfunction)
COUPLES = ("row", "group", "batch")
SHAPES = ("B", "BT", "BTK", "K", "list")
# What `@component(KIND, ...)` takes: fields of a Component.
REGISTERED = ("couples", "shape", "example", "caution", "check", "needs_signal", "parts")
_OPTION = re.compile(r"\s*(\w+)\s*=([^,]*),?")
_PART = re.compile(r"\s*([\w./-]+)\s*(?:\(((?:\s*\w+\s*=[^,]*,?)*)\s*\))?\s*")
_ARXIV = re.compile(r"arXiv:\d{4}\.\d{4,5}", re.IGNORECASE)


@dataclass(frozen=True, eq=False)
class Component:
    """A function with the declaration in its signature.

    Call it as `component(columns, **options)` with a mapping from column names to tensors; its kind
    determines the result (`rlzoo.plugin.call`).
    """

    kind: str
    name: str
    function: Function
    needs: tuple[str, ...]
    options: Mapping[str, Option]
    doc: str
    origin: str
    file: str
    couples: str  # "row", "group" or "batch": how far one row's output may depend on others
    shape: str = ""  # columns only
    example: Function | None = None  # columns only: example(generator, B, T) -> a made-up column
    # What to beware: in recipes of `KEY = VALUE` (or !=, <, >), of samplers without a "correction".
    caution: Mapping[str, str] = field(default_factory=dict)
    needs_signal: bool = False  # policy losses only: where advantages are 0 there is no gradient
    check: Function | None = None  # check(**options), before anything is loaded: see `refuse`
    parts: str = ""  # the option that names components of the same kind, whose results it gets
    peers: Mapping[str, "Component"] | None = None  # of its kind, in the zoo that it is in
    distribution: str = ""  # what installs it

    @property
    def full_name(self) -> str:
        """`distribution/name`, which is unique even if another plugin claims the name; as package
        indexes compare distributions, without a dot, at which keys are split."""
        return f"{re.sub(r'[-_.]+', '-', self.distribution).lower()}/{self.name}"

    @functools.cached_property
    def label(self) -> str:
        return f"{KINDS[self.kind].singular} {self.name!r} ({self.file})"

    @property
    def source(self) -> str:
        """The citation in a docstring: the text after `Source:`, or the phrase around an arXiv
        id."""
        _, _, after = self.doc.partition("Source:")
        arxiv = _ARXIV.search(self.doc)
        text = after.split("\n\n")[0]
        if arxiv and not text:
            before = re.split(r"[.\n(]", self.doc[: arxiv.start()].removesuffix("("))[-1]
            text = f"{before}{arxiv.group()}".strip(" (")
        return " ".join(text.split())

    @property
    def elsewhere(self) -> tuple[str, ...]:
        """What others call it: the words in a docstring's paragraph after `Elsewhere:`."""
        _, _, after = self.doc.partition("Elsewhere:")
        words = (re.sub(r"\(.*?\)", "", word) for word in after.split("Source:")[0].split(","))
        return tuple(filter(None, (plain(word).strip("_.") for word in words)))

    @property
    def summary(self) -> str:
        """The docstring's first paragraph, on one line."""
        return " ".join(self.doc.split("\n\n")[0].split())

    def check_options(self, options: Mapping[str, object]) -> dict[str, Any]:
        """All options, defaults filled in; raises ComponentError naming the faulty one."""
        for name in options:
            if name not in self.options:
                line = f"{self.label} {self.no_option(name)}"
                raise ComponentError(line, key=name, kind="unknown-key")
        checked = {}
        for name, option in self.options.items():
            try:
                checked[name] = option.check(options.get(name, option.default))
            except ValueError as error:
                line = f"{self.label}: option {name!r} {error}"
                fault = option.fault(options.get(name))
                raise ComponentError(line, key=name, kind=fault) from None
        return checked

    def no_option(self, name: str) -> str:
        has = ", ".join(self.options) or "none"
        return f"has no option {name!r} (it has: {has}){nearest(name, self.options)}"

    def refuse(self, options: Mapping[str, object]) -> None:
        """Raise what `check` raises for these options; it loads no model and uses no network."""
        if self.check is not None:
            self.check(**options)

    def parts_of(self, options: Mapping[str, Any]) -> list[tuple["Component", dict[str, Any]]]:
        """The components that the option `parts` names, such as `gae(lam=0.9)`, each with its
        checked options. options: checked. Raises ComponentError or UnknownName."""
        parts = []
        for text in options[self.parts] if self.parts else ():
            match = _PART.fullmatch(text)
            part = (self.peers or {})[match[1]] if match else None
            if part is None or match is None or part.parts:
                fault = "has parts itself" if part else "is not of the form NAME(OPTION=VALUE)"
                line = f"{self.label}: {self.parts}: {text!r} {fault}"
                raise ComponentError(line, key=self.parts, kind="wrong-type")
            given = {key: _value(value) for key, value in _OPTION.findall(match[2] or "")}
            parts.append((part, part.check_options(given)))
        return parts

    def needs_with(self, options: Mapping[str, Any]) -> tuple[str, ...]:
        """The needs of the component and of its parts, with these checked options."""
        parts = [name for part, _ in self.parts_of(options) for name in part.needs]
        return tuple(dict.fromkeys([*self.needs, *parts]))

    def __call__(self, columns: Mapping[str, Any] | None = None, /, **options: Any) -> Any:
        from rlzoo.plugin.call import call  # here, not above: it imports torch

        options = self.check_options(options)
        return call(self, columns or {}, options)


def read_component(kind: str, function: Function, origin: str, **extra: Any) -> Component:
    """A Component from a function or class; raises ComponentError, naming its file and fault."""
    if not callable(function):
        raise ComponentError(f"registered {function!r}, which is not a function")
    name = name_of(getattr(function, "__name__", ""))
    place = place_of(function)
    try:
        if not name.isidentifier():
            raise ValueError("has no usable name; register a named function")
        if inspect.isclass(function) and kind not in OBJECTS:
            raise ValueError("is a class; write a function")
        if any(test(function) for test in NO_RESULT):
            raise ValueError("is async or has a yield; write a function that returns its result")
        if not name.isascii():  # a letter of another alphabet looks like one of ASCII
            raise ValueError(f"has a name with letters other than ASCII: {name!a}")
        needs, options = _declaration(function)
        couples = extra.pop("couples", "group" if "group_ids" in needs else "row")
        shape = extra.get("shape", "")
        if couples not in COUPLES:
            raise ValueError(f"couples must be one of {', '.join(COUPLES)}. Got {couples!r}")
        if kind != "columns" and shape:
            raise ValueError("only a column has a shape")
        if kind == "columns" and shape not in SHAPES:
            raise ValueError(
                "a column must declare its shape: @component('column', shape='BT'), or "
                f"{', '.join(SHAPES)}. Got {shape!r}"
            )
        if extra.get("needs_signal") and couples != "row":
            raise ValueError(
                f"needs_signal=True leaves out rows, but with couples={couples!r} other rows need "
                "them; register it without needs_signal"
            )
    except ValueError as error:
        raise ComponentError(f"{KINDS[kind].singular} {name!r} ({place}): {error}") from None
    doc = inspect.cleandoc(function.__doc__ or "")
    return Component(kind, name, function, needs, options, doc, origin, place, couples, **extra)


def name_of(function: str) -> str:
    """The component's name for a function or class of this name: `KeyDoor` is `key_door`."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", function).lower()


def _declaration(function: Function) -> tuple[tuple[str, ...], Mapping[str, Option]]:
    """(needs, options) as the signature declares them; raises ValueError if it does not."""
    target = function.__init__ if inspect.isclass(function) else function
    try:
        hints = typing.get_type_hints(target, include_extras=True)
        parameters = inspect.signature(function).parameters.values()
    except (NameError, TypeError, ValueError) as error:
        raise ValueError(f"its signature cannot be read: {error}") from None
    needs: list[str] = []
    options: dict[str, Option] = {}
    for p in parameters:
        if p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD):
            raise ValueError(f"'{p}' declares nothing; name each column and option")
        if p.kind is not p.KEYWORD_ONLY:
            if p.default is not p.empty:
                raise ValueError(f"{p.name!r} has a default; make it keyword-only to be an option")
            needs.append(p.name)
            continue
        try:
            if p.name not in hints:
                raise ValueError("has no type")
            if p.default is p.empty:
                raise ValueError("has no default")
            options[p.name] = Option.read(p.name, hints[p.name], p.default)
        except ValueError as error:
            raise ValueError(f"option {p.name!r} {error}") from None
    return tuple(needs), types.MappingProxyType(options)


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text.strip()


@functools.cache
def place_of(function: Function) -> str:
    """`file.py:12`, with the path below its import root."""
    inner = inspect.unwrap(getattr(function, "func", function))  # of a partial
    code = getattr(inner, "__code__", None)  # functions have it; classes do not
    try:
        file = inspect.getsourcefile(inner) or "?"
        line = code.co_firstlineno if code else inspect.findsource(inner)[1] + 1
    except (OSError, TypeError):
        return getattr(function, "__module__", "?")
    return f"{path_below_root(file)}:{line}"


def path_below_root(file: str) -> str:
    roots = [p for p in sys.path if p and file.startswith(p.rstrip("/") + "/")]
    return file[len(max(roots, key=len)) :].lstrip("/") if roots else file
