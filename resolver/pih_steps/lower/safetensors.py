"""safetensors: the header of an untrusted file, checked, its bytes by rows, and a writer that streams.

The format: 8 bytes little-endian header length, a JSON object name → {dtype, shape, data_offsets},
then the data without a gap. (The `safetensors` library, the tests' oracle, reads and writes whole files only.)
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import IO, Any

from pih_runtime.errors import BuildError
from pih_runtime.numbers import whole
from pih_steps.lower.checkpoint import Checkpoint, Tensor, no_bytes
from pih_steps.lower.formats import matrix, row_bytes, tensor_bytes

MAX_HEADER = 100_000_000  # the format's own limit
ALIGNMENT = 64
FILLER = "_pad."  # how the names of tensors begin that only fill a gap
_MOST_AXES, _MOST_VALUES = 8, 1 << 40  # of a tensor
FORMATS = {"F32": "f32", "F16": "f16", "BF16": "bf16"}
_FIX = "fetch the file again; if it stays so, the file is damaged"


@dataclass(frozen=True, slots=True)
class Header:
    """Tensors by name, and where each begins in the file."""

    tensors: Mapping[str, Tensor]
    offsets: Mapping[str, int]


def read_header(stream: IO[bytes], size: int, where: str) -> Header:
    """Parse and check the header of a file of `size` bytes."""
    base, table = _table(stream, size, where)
    found = {name: _entry(name, entry, where) for name, entry in table.items()}
    _check_cover({name: span for name, (_, span) in found.items()}, base, size, where)
    tensors = {name: tensor for name, (tensor, _) in found.items()}
    return Header(tensors, {name: base + begin for name, (_, (begin, _)) in found.items()})


def read_lengths(stream: IO[bytes], size: int, where: str) -> dict[str, int]:
    """Bytes of each tensor, whatever its dtype: packed weights have some that no checkpoint has."""
    base, table = _table(stream, size, where)
    spans = {name: _span(name, entry, where) for name, entry in table.items()}
    _check_cover(spans, base, size, where)
    return {name: end - begin for name, (begin, end) in spans.items()}


def _table(stream: IO[bytes], size: int, where: str) -> tuple[int, dict[str, Any]]:
    """Where the data begins, and the entries of the tensors."""
    start = stream.read(8)
    length = struct.unpack("<Q", start)[0] if len(start) == 8 else 0
    if not 2 <= length <= min(MAX_HEADER, size - 8):
        raise _bad(f"its length {length} does not fit a file of {size} bytes", where)
    try:
        entries = json.loads(stream.read(length).decode(), object_pairs_hook=_unique, parse_int=whole)
    except (ValueError, RecursionError) as problem:
        raise _bad(str(problem), where) from problem
    if not isinstance(entries, dict):
        raise _bad("it is no JSON object", where)
    return 8 + length, {name: entry for name, entry in entries.items() if name != "__metadata__"}


def _check_cover(spans: Mapping[str, tuple[int, int]], base: int, size: int, where: str) -> None:
    """They lie back to back from the header to the end of the file."""
    at = 0
    for begin, end, name in sorted((begin, end, name) for name, (begin, end) in spans.items()):
        if end > size - base:
            raise _bad(f"tensor {name} would end at byte {base + end}, the file has {size}", where)
        if begin != at:
            raise _bad(f"tensor {name} begins at {begin}, where the one before ends is {at}", where)
        at = end
    if at != size - base:
        raise _bad(f"{size - base - at} bytes belong to no tensor", where)


def _bad(what: str, where: str) -> BuildError:
    return BuildError(f"bad safetensors header: {what}", where=where, fix=_FIX)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) != len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"{next(name for name in names if names.count(name) > 1)!r} appears twice")
    return table


def _entry(name: str, entry: Any, where: str) -> tuple[Tensor, tuple[int, int]]:
    """One tensor of the table, or BuildError naming it."""
    tensor = described_tensor(name, entry, where)
    begin, end = _span(name, entry, where)
    expected = tensor_bytes(tensor.format, tensor.shape, f"{where}: {name}")
    if end - begin != expected:
        raise BuildError(
            f"tensor {name} is {tensor.format} {list(tensor.shape)}, {expected} bytes, not {end - begin} at {begin}",
            where=where,
            fix=_FIX,
        )
    return tensor, (begin, end)


def _span(name: str, entry: Any, where: str) -> tuple[int, int]:
    """Where a tensor begins and ends, counted from the start of the data."""
    offsets = entry.get("data_offsets") if isinstance(entry, dict) else None
    if not (isinstance(offsets, list) and len(offsets) == 2 and all(type(item) is int for item in offsets)):
        raise BuildError(f"tensor {name} has data_offsets {offsets!r:.100}", where=where, fix=_FIX)
    begin, end = offsets
    if not 0 <= begin <= end:
        raise BuildError(f"tensor {name} has data_offsets {offsets!r:.100}", where=where, fix=_FIX)
    return begin, end


def described_tensor(name: str, entry: Any, where: str) -> Tensor:
    """The form of one tensor from its dtype and shape, as a table or a header says them."""
    dtype, shape = (entry.get("dtype"), entry.get("shape")) if isinstance(entry, dict) else (None, None)
    if not isinstance(dtype, str) or dtype not in FORMATS:
        raise BuildError(f"tensor {name} has dtype {dtype!r:.100}", where=where, fix=f"known are {', '.join(FORMATS)}")
    if not (isinstance(shape, list) and shape and all(type(item) is int and item > 0 for item in shape)):
        raise BuildError(f"tensor {name} has the shape {shape!r:.100}", where=where, fix=_FIX)
    if len(shape) > _MOST_AXES or max(shape) > _MOST_VALUES or prod(shape) > _MOST_VALUES:
        raise BuildError(f"tensor {name} has the impossible shape {shape!r:.100}", where=where, fix=_FIX)
    return Tensor(FORMATS[dtype], tuple(shape))


def checkpoint_of(shards: Mapping[str, tuple[Path | None, Header]], config: Mapping[str, Any]) -> Checkpoint:
    """One checkpoint over one or several files.

    By the name that errors use: the path, None where only the header is at hand, and the header.
    """
    home: dict[str, str] = {}
    tensors: dict[str, Tensor] = {}
    for where, (_, header) in shards.items():
        for name, tensor in header.tensors.items():
            if name in tensors:
                raise BuildError(f"tensor {name} is in {home[name]} too", where=where, fix=_FIX)
            tensors[name], home[name] = tensor, where

    def read(name: str, start: int, stop: int) -> bytes:
        where = home[name]
        path, header = shards[where]
        if path is None:
            return no_bytes(where)(name, start, stop)
        stride = row_bytes(tensors[name].format, matrix(tensors[name].shape)[1], where)
        with path.open("rb") as file:
            file.seek(header.offsets[name] + start * stride)
            data = file.read((stop - start) * stride)
        if len(data) != (stop - start) * stride:
            raise BuildError(f"the file ends inside tensor {name}", where=where, fix=_FIX)
        return data

    return Checkpoint(next(iter(shards)), config, tensors, read)


@dataclass(frozen=True, slots=True)
class Entry:
    """A tensor to write: its form in the table, and its bytes in pieces of any size."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    nbytes: int
    chunks: Callable[[], Iterable[bytes]]


def write(path: Path, entries: Sequence[Entry], metadata: Mapping[str, str]) -> None:
    """Write a file whose tensors begin 64-byte aligned, streaming; the same entries give the same bytes."""
    padded = list(_aligned(entries))
    table: dict[str, Any] = {"__metadata__": dict(sorted(metadata.items()))}
    at = 0
    for entry in padded:
        table[entry.name] = {"dtype": entry.dtype, "shape": entry.shape, "data_offsets": [at, at + entry.nbytes]}
        at += entry.nbytes
    header = json.dumps(table, separators=(",", ":"), ensure_ascii=False).encode()
    header += b" " * (-(8 + len(header)) % ALIGNMENT)
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(header)) + header)
        for entry in padded:
            written = sum(file.write(chunk) for chunk in entry.chunks())
            if written != entry.nbytes:
                raise BuildError(
                    f"tensor {entry.name} has {written} bytes, planned were {entry.nbytes}", where=str(path)
                )


def _aligned(entries: Sequence[Entry]) -> Iterator[Entry]:
    """The format allows no gaps: a tensor that ends unaligned is followed by filler."""
    for index, entry in enumerate(entries):
        yield entry
        if (filler := -entry.nbytes % ALIGNMENT) and index + 1 < len(entries):
            zeros = bytes(filler)
            yield Entry(f"{FILLER}{index}", "U8", (filler,), filler, lambda zeros=zeros: [zeros])  # type: ignore[misc]
