"""TRL's training_args.bin: a pickle that is read as data, without importing or running its
classes."""

import pickle
import zipfile
from pathlib import Path
from typing import Any

from rlzoo_lab.strict import damaged

LARGEST = 2**22  # bytes: such a file has a few thousand


class _Inert:
    """A placeholder for every class and function in a pickle; it keeps its arguments and state."""

    arguments: tuple[Any, ...] = ()
    state: Any = None

    def __init__(self, *arguments: Any, **_: Any):
        self.arguments = arguments

    def __setstate__(self, state: Any) -> None:
        self.state = state

    def __setitem__(self, key: Any, value: Any) -> None:
        pass

    def extend(self, items: Any) -> None:
        pass

    append = extend


class _Reader(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        return _Inert

    def persistent_load(self, pid: Any) -> None:
        return None


def read_arguments(path: Path) -> dict[str, Any]:
    """The plain values among the settings in a training_args.bin: numbers, texts and lists of
    these. Raises DataError."""
    expected = "training arguments written by torch.save"
    try:
        with zipfile.ZipFile(path) as archive:
            names = [n for n in archive.namelist() if n.endswith("/data.pkl")]
            if len(names) != 1 or archive.getinfo(names[0]).file_size > LARGEST:
                raise damaged(path, None, expected)
            with archive.open(names[0]) as file:
                found = _Reader(file).load()
    except (OSError, zipfile.BadZipFile, pickle.UnpicklingError, EOFError, ValueError, TypeError,
            AttributeError, LookupError, MemoryError, OverflowError, RecursionError):  # fmt: skip
        raise damaged(path, None, expected) from None
    state = getattr(found, "state", None)
    if not isinstance(state, dict):
        raise damaged(path, None, expected)
    plain = {str(k): _plain(v) for k, v in state.items()}
    return {k: v for k, v in plain.items() if v is not None}


def _plain(value: Any) -> Any:
    """A number, a text or a list of them, also an enumeration's value; None for anything else."""
    if isinstance(value, _Inert) and len(value.arguments) == 1:
        value = value.arguments[0]
    if isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list | tuple) and all(isinstance(x, int | float | str) for x in value):
        return list(value)
    return None
