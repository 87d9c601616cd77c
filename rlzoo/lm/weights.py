"""The files of a model, which are untrusted: each fault becomes an error of one line."""

import contextlib
import hashlib
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from rlzoo.errors import ModelError, RlzooError, first_line
from rlzoo.format.text import printable_logs
from rlzoo.plugin.border import out_of_memory

PIECE, PIECES = 2**16, 64  # bytes, and how many of them a file gives to its checksum


def checksum(path: Path) -> str:
    """SHA-256 (16 digits) of a model's weights, independent of names: the size of each file and 64
    evenly spaced pieces of 64 KiB, so that a large model costs no more to hash."""
    digest = hashlib.sha256()
    kinds = (".safetensors", ".bin", "adapter_config.json")
    inside = [path] if path.is_file() else path.iterdir()
    for file in sorted(p for p in inside if p == path or p.name.endswith(kinds)):
        size = file.stat().st_size
        digest.update(f"{file.name} {size}".encode())
        with file.open("rb") as stream:
            for i in range(PIECES):
                stream.seek(max(0, size - PIECE) * i // (PIECES - 1))
                digest.update(stream.read(PIECE))
    return digest.hexdigest()[:16]


@contextlib.contextmanager
def reading(what: str) -> Iterator[None]:
    """Context for a library that reads a model's files; turns its errors into one line.

    Such files are untrusted, and libraries raise any error for them, even Exception itself
    (tokenizers). So everything is caught here, as at the border to plugins.
    """
    try:
        with printable_logs():
            yield
    except (RlzooError, MemoryError):
        raise
    except Exception as error:
        if out_of_memory(error):
            raise
        raise ModelError(f"{what}: {said_by(error)}") from error


def said_by(error: Exception) -> str:
    """The message of a library's error on one line, with rlzoo's option names."""
    if "trust_remote_code" in str(error):
        return (
            "it contains its own code, which runs only with model.trust_remote_code=true on the "
            "command line (resume, export: --trust-remote-code)"
        )
    plain = isinstance(error, RlzooError | OSError | ValueError | ImportError)
    return first_line(error) if plain else f"{type(error).__name__}: {first_line(error)}"


# While it loads, transformers ties no weights, in all threads; two loads at once would leave it so
# for good.
LOADING = threading.RLock()


def load_weights(kind: Any, folder: Path, **how: Any) -> Any:
    """`kind.from_pretrained`, of safetensors only. Raises ModelError if the files cannot be
    read, lack a weight (it would be random) or hold one that is not finite."""
    with LOADING, reading(f"{folder}: cannot be loaded"):
        model, info = kind.from_pretrained(
            folder, local_files_only=True, use_safetensors=True, output_loading_info=True, **how
        )
    if missing := sorted(info["missing_keys"]):
        unknown = sorted(info["unexpected_keys"])
        there = f"; the files contain {_some(unknown)} instead" if unknown else ""
        raise ModelError(f"{folder}: weights are missing: {_some(missing)}{there}")
    refuse_non_finite(model, folder)
    return model


def _some(names: list[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def refuse_non_finite(model: torch.nn.Module, folder: Path) -> None:
    # A finite sum means finite entries, at a fraction of the cost of looking at each.
    odd = [(n, x) for n, x in model.named_parameters() if not x.detach().float().sum().isfinite()]
    if bad := [n for n, x in odd if not x.isfinite().all()]:
        raise ModelError(f"{folder}: these weights are NaN or infinite: {_some(bad)}")
