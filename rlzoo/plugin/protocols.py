"""The interfaces of plugins' objects: the methods that the core calls. No torch here.

A class need not inherit from these; a type checker holds `task: Task = MyTask()` to them. The
kinds that are plain functions, such as estimators, have their columns for a signature instead.
"""

from argparse import ArgumentParser
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

from rlzoo.plugin.component import Example

if TYPE_CHECKING:
    import torch

Split = Literal["train", "test"]


Tokenizer = Any  # one of transformers


class Task(Protocol):
    """Draws prompts and scores responses. `Abilities` lists optional members."""

    def draw(self, split: Split, n: int, generator: "torch.Generator") -> Iterable[Example]:
        """n examples; only the generator decides which. No prompt is in both splits."""

    @property
    def score(self) -> "Callable[..., torch.Tensor]":
        """A method whose parameters are columns of the rollout: float, (B,) for whole responses or
        (B, T) for tokens."""


@dataclass(frozen=True)
class Abilities:
    """Optional members of a task, after `draw` and `score`: None, or the default, where absent.
    The methods' parameters are columns, unless noted.

    is_correct: -> (B,) bool, which responses are correct. Evaluations then have an accuracy.
    one_answer: a response is correct exactly if its text is `Example.answer` and EOS follows.
    extract: -> a list of B texts, the answer within each response, for maj@k.
    demonstrate: (example, generator) -> (correct, wrong), texts or lists of turns, for `rlzoo
    base`. respond: -> a list of B texts that answer the policy's turns, with None if the episode
    ends. The task is then a conversation; its columns are those of `rlzoo.plugin.columns.TOLD`.
    respond_role: the role of `respond`'s messages in a chat template. state_keys: -> a list of B
    hashable keys of the states in which turns begin. stops: texts that end a turn, as EOS does.
    domains: the names of the domains of its prompts. domain_of: (example) -> one of them.
    fit: (count, room) -> a note or None: leaves out prompts whose `count(prompt)` tokens exceed
        `room` (None: no limit).
    notes: lines to show when a run starts.
    """

    is_correct: "Callable[..., torch.Tensor] | None" = None
    one_answer: bool = False
    extract: Callable[..., Sequence[str]] | None = None
    demonstrate: "Callable[[Example, torch.Generator], tuple[Any, Any]] | None" = None
    respond: Callable[..., list[str | None]] | None = None
    respond_role: str = "user"
    state_keys: Callable[..., list[Any]] | None = None
    stops: tuple[str, ...] = ()
    domains: Sequence[str] = ()
    domain_of: "Callable[[Example], object] | None" = None
    fit: Callable[[Callable[[Any], int], int | None], str | None] | None = None
    notes: Sequence[str] = ()


def abilities(task: object) -> Abilities:
    """The optional members of a task or of a task class. Only this function looks them up."""
    members: dict[str, Any] = {f.name: getattr(task, f.name, f.default) for f in fields(Abilities)}
    return Abilities(**members)


class Logger(Protocol):
    """Created as `Logger(path)` with the run folder's path; receives metrics."""

    def log(self, metrics: Mapping[str, float]) -> None:
        """metrics: name -> number, from a step or an evaluation."""

    def close(self) -> None: ...


# Entry points, by their groups. `rlzoo.measures`: more metrics of each step, from its
# `rlzoo.recipe.plan.Plan` and its columns on the host, by name.
Measure = Callable[[Any, Mapping[str, Any]], Mapping[str, float]]

# `rlzoo.models`: (path, key) -> the folder, as transformers loads it, of a model in another format,
# which the recipe's `key` names; None for a path of any other. Raises ModelError, naming the key.
ModelFormat = Callable[[str, str], Path | None]

# `rlzoo.completers`: (verbs, parser of a verb) -> answers a shell's request, which is in the
# environment, and ends the process.
Completer = Callable[[Sequence[str], Callable[[str], ArgumentParser]], None]


class Store(Protocol):
    """Keeps a run's folder at a URL; `local` is the folder on this machine. See "A store" in
    docs/plugin-authors.md."""

    url: str

    def check_free(self, overwrite: bool) -> None: ...
    def begin(self, local: Path) -> None: ...
    def take_up(self, local: Path) -> None: ...
    def push(self, local: Path) -> int: ...
    def mirror(self, local: Path, tell: Callable[[str], None], last: bool = False) -> None: ...
    def names(self) -> Iterable[str]: ...
    def fetch(self, local: Path, wanted: Callable[[str], bool], large: bool) -> None: ...
    def copy(self, large: bool) -> Path: ...
    def put(self, path: Path) -> None: ...
