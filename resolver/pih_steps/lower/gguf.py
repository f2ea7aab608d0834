"""GGUF: header, metadata and tensor table of an untrusted file, bounds checked before anything is believed.

Read with the standard library from any stream, so that a header can be had from inside a wheel
without unpacking it. The `gguf` library is the tests' oracle; it loops for hours on a hostile array length.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from math import prod
from pathlib import Path
from typing import IO, Any

from pih_runtime.errors import BuildError
from pih_steps.lower.checkpoint import Checkpoint, Tensor, no_bytes
from pih_steps.lower.formats import matrix, row_bytes, tensor_bytes
from pih_steps.lower.gguf_names import hf_config, hf_name

# Largest figures that any real file comes near; a hostile header must not make us loop or allocate.
MAX_ITEMS = 4_000_000
MAX_HEADER = 256 << 20
MAX_DIMENSION = 1 << 40

_SCALARS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"}
_STRING, _ARRAY = 8, 9
_FORMATS = {0: "f32", 1: "f16", 3: "q4_1", 8: "q8_0", 30: "bf16"}
_FIX = "fetch the file again; if it stays so, the file is damaged"


@dataclass(frozen=True, slots=True)
class Header:
    """metadata as stored; tensors by their GGUF name; offsets from the start of the file."""

    metadata: Mapping[str, Any]
    tensors: Mapping[str, Tensor]
    offsets: Mapping[str, int]


class _Cursor:
    """Reads little-endian values from a stream and never past the header's limit."""

    def __init__(self, stream: IO[bytes], where: str) -> None:
        self.stream = stream
        self.where = where
        self.at = 0

    def fail(self, what: str) -> BuildError:
        return BuildError(f"bad GGUF header: {what}", where=self.where, fix=_FIX)

    def take(self, count: int) -> bytes:
        if count > MAX_HEADER - self.at:
            raise self.fail(f"{count} bytes at {self.at} pass the limit of {MAX_HEADER} for a header")
        data = self.stream.read(count)
        if len(data) != count:
            raise self.fail(f"the file ends at {self.at + len(data)}, {count} bytes were expected at {self.at}")
        self.at += count
        return data

    def number(self, code: str) -> Any:
        return struct.unpack(code, self.take(struct.calcsize(code)))[0]

    def text(self) -> str:
        start = self.at
        try:
            return self.take(self.number("<Q")).decode()
        except UnicodeDecodeError as problem:
            raise self.fail(f"the string at {start} is not UTF-8") from problem

    def count(self, what: str) -> int:
        value: int = self.number("<Q")
        if value > MAX_ITEMS:
            raise self.fail(f"{value} {what}, more than {MAX_ITEMS}")
        return value

    def value(self, kind: int) -> Any:
        if kind in _SCALARS:
            return self.number(_SCALARS[kind])
        if kind == _STRING:
            return self.text()
        if kind != _ARRAY:
            raise self.fail(f"unknown value type {kind} at {self.at}")
        item = self.number("<I")
        count = self.count("array items")
        if item in _SCALARS:
            code = f"<{count}{_SCALARS[item][1]}"
            return list(struct.unpack(code, self.take(struct.calcsize(code))))
        if item == _STRING:
            return [self.text() for _ in range(count)]
        raise self.fail(f"unknown array item type {item} at {self.at}")


def read_header(stream: IO[bytes], size: int, where: str) -> Header:
    """Parse the header of a GGUF file of `size` bytes; raises BuildError naming what does not hold together."""
    cursor = _Cursor(stream, where)
    if cursor.take(4) != b"GGUF":
        raise cursor.fail("the file does not begin with GGUF")
    if (version := cursor.number("<I")) not in (2, 3):
        raise cursor.fail(f"version {version} is not 2 or 3")
    tensor_count = cursor.count("tensors")
    metadata: dict[str, Any] = {}
    for _ in range(cursor.count("metadata keys")):
        key = cursor.text()
        if key in metadata:
            raise cursor.fail(f"metadata key {key!r} appears twice")
        metadata[key] = cursor.value(cursor.number("<I"))
    found = [_tensor(cursor) for _ in range(tensor_count)]
    alignment = metadata.get("general.alignment", 32)
    if not isinstance(alignment, int) or not 8 <= alignment <= 1 << 16 or alignment & (alignment - 1):
        raise cursor.fail(f"general.alignment {alignment!r} is not a power of two from 8 to 65536")
    start = -(-cursor.at // alignment) * alignment
    return Header(
        metadata,
        {name: tensor for name, tensor, _ in found},
        _checked_offsets(cursor, found, start, alignment, size),
    )


def _tensor(cursor: _Cursor) -> tuple[str, Tensor, int]:
    name = cursor.text()
    dimensions = cursor.number("<I")
    if not 1 <= dimensions <= 4:
        raise cursor.fail(f"tensor {name} has {dimensions} dimensions, 1 to 4 are possible")
    shape = tuple(reversed([cursor.number("<Q") for _ in range(dimensions)]))
    if min(shape) < 1 or prod(shape) > MAX_DIMENSION:
        raise cursor.fail(f"tensor {name} has the impossible shape {list(shape)}")
    kind, offset = cursor.number("<I"), cursor.number("<Q")
    if kind not in _FORMATS:
        raise BuildError(
            f"tensor {name} is stored as GGML type {kind}",
            where=cursor.where,
            fix=f"take a file that stores its tensors as {', '.join(_FORMATS.values())}",
        )
    return name, Tensor(_FORMATS[kind], shape), offset


def _checked_offsets(
    cursor: _Cursor, found: list[tuple[str, Tensor, int]], start: int, alignment: int, size: int
) -> dict[str, int]:
    """Offsets from the file's start: aligned, inside the file, no name twice, no two tensors overlapping."""
    offsets: dict[str, int] = {}
    spans = []
    for name, tensor, offset in found:
        if name in offsets:
            raise cursor.fail(f"tensor {name} appears twice")
        nbytes = tensor_bytes(tensor.format, tensor.shape, f"{cursor.where}: {name}")
        if offset % alignment:
            raise cursor.fail(f"tensor {name} at offset {offset} is not aligned to {alignment}")
        if start + offset + nbytes > size:
            raise cursor.fail(f"tensor {name} would end at byte {start + offset + nbytes}, the file has {size}")
        offsets[name] = start + offset
        spans.append((start + offset, start + offset + nbytes, name))
    spans.sort()
    for (_, end, first), (begin, _, second) in pairwise(spans):
        if begin < end:
            raise cursor.fail(f"tensors {first} and {second} overlap at byte {begin}")
    return offsets


def checkpoint_of(header: Header, path: Path | None, where: str) -> Checkpoint:
    """The checkpoint of a parsed header; `path` None where only the header is at hand."""
    config = hf_config(header.metadata, set(header.tensors), where)
    stored = {hf_name(name, where): name for name in header.tensors}

    def read(name: str, start: int, stop: int) -> bytes:
        if path is None:
            return no_bytes(where)(name, start, stop)
        tensor = header.tensors[stored[name]]
        stride = row_bytes(tensor.format, matrix(tensor.shape)[1], where)
        with path.open("rb") as file:
            file.seek(header.offsets[stored[name]] + start * stride)
            data = file.read((stop - start) * stride)
        if len(data) != (stop - start) * stride:
            raise BuildError(f"the file ends inside tensor {name}", where=where, fix=_FIX)
        return data

    return Checkpoint(where, config, {name: header.tensors[stored[name]] for name in stored}, read)
