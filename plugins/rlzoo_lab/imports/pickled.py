"""Settings in a pickle, as torch.save writes them, read without running its classes."""

import pickle
import zipfile
from pathlib import Path
from typing import Any

from rlzoo_lab.data.strict import damaged

LARGEST = 2**28  # bytes of a pickle
FAULTS = (OSError, zipfile.BadZipFile, pickle.UnpicklingError, EOFError, ValueError, TypeError,
          AttributeError, LookupError, MemoryError, OverflowError, RecursionError)  # fmt: skip


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


class _Reader(pickle._Unpickler):
    """The reader in Python: its memo is a mapping, so an index beyond the end of the file takes no
    memory, as it would in C."""

    def find_class(self, module: str, name: str) -> Any:
        return _Inert

    def persistent_load(self, pid: Any) -> Any:
        return None


def read_arguments(path: Path) -> dict[str, Any]:
    """The numbers, texts and lists of them in a training_args.bin. Raises DataError."""
    try:
        with zipfile.ZipFile(path) as archive:
            [name] = [n for n in archive.namelist() if n.endswith("data.pkl")]
            if archive.getinfo(name).file_size > LARGEST:
                raise ValueError("its pickle is too large")
            with archive.open(name) as file:
                plain = {str(k): _plain(v) for k, v in _Reader(file).load().state.items()}
    except FAULTS:
        raise damaged(path, None, "what torch.save writes of training arguments") from None
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
