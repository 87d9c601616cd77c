"""Pickles, as torch.save or `pickle.dump` writes them, read as data: without importing or running
their classes."""

import io
import math
import pickle
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from rlzoo_lab.data.strict import damaged

LARGEST = 2**28  # bytes of a pickle without its tensors
KINDS = {"FloatStorage": "<f4", "DoubleStorage": "<f8", "HalfStorage": "<f2", "LongStorage": "<i8",
         "IntStorage": "<i4", "ShortStorage": "<i2", "CharStorage": "<i1", "ByteStorage": "<u1",
         "BoolStorage": "<?", "BFloat16Storage": "<u2"}  # fmt: skip


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


class _Tensor(_Inert):
    """What torch rebuilds a tensor from: (archive, entry, kind), offset, size, strides."""

    def array(self) -> Any:
        """Raises ValueError or LookupError if its numbers are not there, or not in order."""
        (archive, entry, kind), offset, size, strides = self.arguments[:4]
        wanted = [math.prod(size[i + 1 :]) for i in range(len(size))]
        ordered = all(s == w or n < 2 for s, w, n in zip(strides, wanted, size, strict=True))
        if archive.getinfo(entry).compress_type != zipfile.ZIP_STORED or not ordered:
            raise ValueError("a tensor that is compressed or not contiguous")
        if getattr(archive, "last", ("",))[0] != entry:
            archive.last = entry, archive.read(entry)  # tensors of one storage follow each other
        numbers = np.frombuffer(archive.last[1], KINDS[kind])[offset : offset + math.prod(size)]
        if kind == "BFloat16Storage":
            numbers = (numbers.astype("<u4") << 16).view("<f4")
        return numbers.reshape(size)


class _Reader(pickle._Unpickler):
    """The reader in Python: its memo is a mapping, so an index beyond the end of the file takes no
    memory, as it would in C."""

    archive: Any = None
    root = ""

    def find_class(self, module: str, name: str) -> Any:
        if name in KINDS:
            return name
        return _Tensor if name == "_rebuild_tensor_v2" else _Inert

    def persistent_load(self, pid: Any) -> Any:
        return (self.archive, f"{self.root}data/{pid[2]}", pid[1]) if len(pid) > 2 else None


FAULTS = (OSError, zipfile.BadZipFile, pickle.UnpicklingError, EOFError, ValueError, TypeError,
          AttributeError, LookupError, MemoryError, OverflowError, RecursionError)  # fmt: skip


def read_saved(path: Path, expected: str) -> Any:
    """A file's object: mappings, lists, numbers and strings, tensors for `array`; everything else
    is inert. Raises DataError."""
    try:
        with open(path, "rb") as file:
            if file.read(2) != b"PK":
                file.seek(0)
                return _Reader(file).load()
        return _read(path)
    except FAULTS:
        raise damaged(path, None, expected) from None


def _read(source: Any) -> Any:
    archive = zipfile.ZipFile(source)  # it stays open for its tensors
    [name] = [n for n in archive.namelist() if n.endswith("data.pkl")]
    if archive.getinfo(name).file_size > LARGEST:
        raise ValueError("its pickle is too large")
    with archive.open(name) as file:
        reader = _Reader(file)
        reader.archive, reader.root = archive, name.removesuffix("data.pkl")
        return reader.load()


def array(value: Any, at: Path) -> Any:
    """A list as it is, a tensor or what SkyRL makes of one as an array; None of anything else.
    Raises DataError, which names the place."""
    try:
        if isinstance(value, _Tensor):
            return value.array()
        if isinstance(value, dict) and value.get("format") == "torch":
            return _read(io.BytesIO(value["data"])).array()
        if isinstance(value, dict) and "dtype" in value:
            return np.frombuffer(value["data"], value["dtype"]).reshape(value["shape"])
    except FAULTS:
        raise damaged(at, None, "a whole tensor") from None
    return value if isinstance(value, list) else None


def read_arguments(path: Path) -> dict[str, Any]:
    """The plain values among the settings in a training_args.bin: numbers, texts, lists of them.
    Raises DataError."""
    expected = "what torch.save writes of training arguments"
    state = getattr(read_saved(path, expected), "state", None)
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
