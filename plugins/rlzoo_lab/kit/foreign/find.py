"""Finds a function that is not of the zoo, and makes components of it."""

import importlib
import inspect
import operator
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from rlzoo.errors import ComponentError, RlzooError, UsageError, nearest
from rlzoo.plugin.border import border
from rlzoo.plugin.columns import COLUMNS
from rlzoo.plugin.component import KINDS, Component
from rlzoo.plugin.registry import import_file
from rlzoo_lab.kit.foreign.adapt import Call, adapt
from rlzoo_lab.kit.foreign.libraries import LIBRARIES, Library, Make, Named

ALL = "all"  # of a library: verl:all


class Found(NamedTuple):
    label: str
    function: Any  # None: at the path in `named`
    named: Named


def is_foreign(name: str) -> bool:
    """Whether a name is that of a function elsewhere: verl:grpo, FILE.py:F, PACKAGE.MODULE:F."""
    return ":" in name or name.endswith(".py")


def components(
    name: str | Callable[..., Any], options: Mapping[str, Any], maps: Mapping[str, str]
) -> tuple[list[Component], list[tuple[str, str]]]:
    """The components of that name, and (of LIBRARY:all) names that cannot be called, with why.

    name: or the function itself. maps: argument -> column.
    options: values of arguments, and `kind` and `couples` if they cannot be inferred.
    """
    for theirs, ours in maps.items():
        if ours not in COLUMNS:
            fault = f"--map {theirs}={ours}: there is no column {ours!r}{nearest(ours, COLUMNS)}"
            raise UsageError(fault)
    options = dict(options)
    kind, couples = str(options.pop("kind", "")), str(options.pop("couples", ""))
    kind = next((k.plural for k in KINDS.values() if kind == k.singular), kind)
    if kind and kind not in KINDS:
        kinds = [k.singular for k in KINDS.values()]
        raise UsageError(f"kind={kind}: must be one of {', '.join(kinds)}{nearest(kind, kinds)}")
    if couples not in ("", "row", "group", "batch"):
        raise UsageError(f"couples={couples}: must be one of row, group, batch")
    made: list[Component] = []
    failed: list[tuple[str, str]] = []
    library, some = None, []
    if isinstance(name, str):
        place, _, function = name.rpartition(":")
        if not (place and function):
            raise UsageError(f"{name}: write {name.strip(':') or 'FILE.py'}:FUNCTION")
        library = LIBRARIES.get(place.partition(".")[0])
        some = _find(name, place, function, library)
        if kind:  # a library may have one of each kind
            some = [found for found in some if found.named.kind in ("", kind)]
    else:
        label = getattr(name, "__name__", type(name).__name__)
        some = [Found(label, name, Named(label))]
    for found in some:
        try:
            made.append(_component(found, library, options, maps, kind, couples))
        except RlzooError as error:
            if not str(name).endswith(f":{ALL}"):
                raise
            failed.append((found.label, str(error)))
    return made, failed


def _component(found: Found, library: Library | None, options: Mapping[str, Any],
               maps: Mapping[str, str], kind: str, couples: str) -> Component:  # fmt: skip
    named, kind = found.named, kind or found.named.kind
    function, average = found.function, None
    if function is None:
        where, _, path = named.path.rpartition(":")
        where = where or (library.module if library else "")
        function = _attribute(where, _module(where), path)
    values = {n: _made(x) for n, x in {**named.values, **options}.items()}
    with border(found.label):
        if inspect.isclass(function):
            own = [n for n in inspect.signature(function).parameters if n in values]
            made = function(**{n: values.pop(n) for n in own})
            function = getattr(made, "forward", made)
        if not callable(function):
            raise UsageError(f"{found.label}: {function!r:.60} cannot be called")
        if named.wrap is not None:
            function = named.wrap(function)
        if library is not None:
            module = sys.modules[library.module]
            average = (module, library.average) if library.average else None
            of_kind = library.values.get(kind, {}).items()
            has = inspect.signature(function).parameters
            values |= {n: _made(x) for n, x in of_kind if n in has and n not in values}
    arguments = {**named.arguments, **maps}
    call = Call(function, found.label, kind, couples or named.couples, arguments, average)
    return adapt(call, values)


def _find(name: str, place: str, function: str, library: Library | None) -> list[Found]:
    module = _module(library.module) if library else None
    if library is None or place not in LIBRARIES:
        return [Found(name, None, Named(name))]
    known = [Found(own, None, named) for own, some in library.names.items() for named in some]
    for kind, registry in library.registries.items():
        for own, registered in operator.attrgetter(registry)(module).items():
            text = str(getattr(own, "value", own))
            if "/" not in text:  # else one of the zoo's, by a bridge
                known.append(Found(text, registered, Named(text, wrap=library.wrap, kind=kind)))
    asked = [found for found in known if function in (found.label, ALL)]
    if not asked and hasattr(module, function):
        asked = [Found(function, None, Named(function))]
    if not asked:
        names = sorted({found.label for found in known})
        raise UsageError(
            f"{library.title} has no {function!r}{nearest(function, names)} "
            f"(known: {', '.join(names)})"
        )
    return [found._replace(label=f"{place}:{found.label}") for found in asked]


def _module(place: str) -> Any:
    """The module of that name or file; raises a line where there is none."""
    top = place.partition(".")[0]
    title = LIBRARIES[top].title if top in LIBRARIES else top
    try:
        with border(place):
            if place.endswith(".py"):
                sys.path.insert(0, str(Path(place).resolve().parent))
                return import_file(Path(place))
            if os.getcwd() not in sys.path:
                sys.path.insert(0, os.getcwd())
            return importlib.import_module(place)
    except ComponentError as error:
        cause = error.__cause__
        if isinstance(cause, ModuleNotFoundError) and cause.name == top:
            raise UsageError(f"{title} is not installed") from None
        if isinstance(cause, FileNotFoundError):
            raise UsageError(str(cause)) from None
        if isinstance(cause, ModuleNotFoundError):
            raise UsageError(f"{place} cannot be imported: it needs {cause.name!r}") from None
        raise


def _attribute(place: str, module: Any, path: str) -> Any:
    try:
        return operator.attrgetter(path)(module)
    except AttributeError:
        names = [n for n, x in vars(module).items() if callable(x)]
        raise UsageError(f"{place} has no {path!r}{nearest(path, names)}") from None


def _made(value: Any) -> Any:
    if not isinstance(value, Make):
        return value
    place, _, name = value.path.partition(":")
    make: Callable[..., Any] = _attribute(place, _module(place), name)
    return make(**{n: _made(x) for n, x in value.keywords.items()})
