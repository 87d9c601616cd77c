"""TensorBoard's event files, read by its own reader, and wandb's offline files, for which newer
versions of wandb have no Python reader (0.31 does not).

A .wandb file is LevelDB's log format (blocks of 32 KiB; CRC-32, length, kind) around messages of
wandb_internal.proto.
"""

import json
import struct
import zlib
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rlzoo.errors import RlzooError
from rlzoo_lab.data.strict import damaged
from rlzoo_lab.imports.found import Found, Row

BLOCK, HEADER = 2**15, 7  # bytes
WANDB = b":W&B"
FULL, FIRST, MIDDLE, LAST = 1, 2, 3, 4


def fields(data: bytes) -> dict[int, list[Any]]:
    """number -> values of a protocol-buffer message: integers, bytes, or floats of 4 or 8 bytes.
    Raises ValueError."""
    at, out = 0, defaultdict[int, list[Any]](list)
    while at < len(data):
        key, at = _varint(data, at)
        kind = key & 7
        size, value = {1: 8, 5: 4}.get(kind, -1), 0
        if kind in (0, 2):
            value, at = _varint(data, at)
            size = value if kind == 2 else 0
        if size < 0 or at + size > len(data):
            raise ValueError("a field extends beyond the end of its message")
        raw, at = data[at : at + size], at + size
        form = {1: "<d", 5: "<f"}.get(kind)
        out[key >> 3].append(struct.unpack(form, raw)[0] if form else raw if kind else value)
    return out


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for shift, byte in enumerate(data[at : at + 10]):
        value |= (byte & 127) << 7 * shift
        if byte < 128:
            return value, at + shift + 1
    raise ValueError("a number does not end")


def tensorboard_rows(path: Path, _: Found) -> Iterator[Row]:
    """The scalars of an event file: a row for each event. Raises DataError, which names the
    record, from 1; RlzooError without tensorboard."""
    try:
        from google.protobuf.message import DecodeError
        from tensorboard.backend.event_processing.event_file_loader import RawEventFileLoader
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.util.tensor_util import make_ndarray
    except ImportError:
        raise RlzooError(
            f"{path}: event files need tensorboard: pip install 'rlzoo-llm[tensorboard]'"
        ) from None
    read, record = 0, 0
    # The loader ends without a word at a record that is damaged.
    for record, data in enumerate(RawEventFileLoader(str(path)).Load(), 1):
        read += len(data) + 16  # length, its checksum, data, its checksum
        try:
            event = Event.FromString(data)
        except DecodeError:
            raise damaged(path, record, "a TensorBoard event") from None
        values = {}
        for value in event.summary.value:
            if value.HasField("simple_value"):
                values[value.tag] = value.simple_value
            elif value.tensor.dtype in (1, 2):  # float32, float64
                array = make_ndarray(value.tensor)
                values |= {value.tag: float(array.item())} if array.size == 1 else {}
        if values:
            yield Row(event.step, values)
    if read < path.stat().st_size:
        raise damaged(path, record + 1, "a whole TensorBoard record")


def wandb_records(path: Path) -> Iterator[tuple[int, bytes]]:
    """(number from 1, message) of the records in a .wandb file; raises DataError.

    If a file ends within its last record, because the run was killed, that record is left out.
    """
    data = path.read_bytes()
    expected = "a wandb record"
    if data[:4] != WANDB or len(data) < HEADER:
        raise damaged(path, 1, "the header of a .wandb file")
    at, record, parts = HEADER, 1, list[bytes]()
    while at < len(data):
        left = BLOCK - at % BLOCK
        if left < HEADER:
            at += left
            continue
        if at + HEADER > len(data):
            break
        crc, size, kind = struct.unpack_from("<IHB", data, at)
        body = data[at + HEADER : at + HEADER + size]
        if not FULL <= kind <= LAST or (kind in (FULL, FIRST)) != (not parts):
            raise damaged(path, record, expected)
        if len(body) < size:
            break
        if zlib.crc32(body, zlib.crc32(bytes([kind]))) != crc:
            raise damaged(path, record, expected)
        parts.append(body)
        at += HEADER + size
        if kind in (FULL, LAST):
            yield record, b"".join(parts)
            record, parts = record + 1, []


def read_wandb(path: Path) -> tuple[list[tuple[int, dict[str, Any]]], dict[str, Any]]:
    """((record, values) of the history, the run's config) of a .wandb file. Raises DataError.

    The message Record has history = 2, config = 5 and run = 17 with config = 4. History and config
    have items = 1, with key = 1, nested_key = 2, value_json = 16.
    """
    rows, config = list[tuple[int, dict[str, Any]]](), dict[str, Any]()
    for number, body in wandb_records(path):
        try:
            record = fields(body)
            rows += [(number, _items(history)) for history in record[2]]
            for settings in (*record[5], *(one for run in record[17] for one in fields(run)[4])):
                config |= _items(settings)
        except (ValueError, TypeError, LookupError, AttributeError, RecursionError, struct.error):
            raise damaged(path, number, "a wandb record") from None
    return rows, {k: v for k, v in config.items() if not k.startswith("_")}


def _items(message: bytes) -> dict[str, Any]:
    out = {}
    for item in map(fields, fields(message)[1]):
        name = ".".join(part.decode() for part in item[1] or item[2])
        out[name] = json.loads(item[16][-1].decode() if item[16] else "null")
    return out
