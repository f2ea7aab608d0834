"""Where a checkpoint comes from, as a profile's model source resolves to: data that the lock holds.

    {"format": "gguf", "file": REFERENCE}
    {"format": "safetensors", "files": [REFERENCE, ...], "config": REFERENCE}
    {"format": "description", "config": REFERENCE, "tensors": REFERENCE}              no bytes: weights come separately
    {"format": "synthetic", "config": REFERENCE, "tensors": REFERENCE, "seed": 0}
References are those of `files`. tensors.json is an object: name → {dtype, shape}. Each may have "weights": one of
`quantized.FORMATS`, in which its matrices then are.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from pih_runtime.errors import BuildError
from pih_runtime.numbers import whole
from pih_steps.lower import files, gguf, safetensors
from pih_steps.lower.checkpoint import Checkpoint, no_bytes
from pih_steps.lower.files import Paths, Reference
from pih_steps.lower.quantized import stored_as

Source = Mapping[str, Any]


def described(source: Source, artifacts: Paths, trees: Paths) -> Checkpoint:
    """The checkpoint's config and tensor table, for lowering: nothing is unpacked, no bytes can be read."""
    return stored_as(source.get("weights", "stored"), _described(source, artifacts, trees))


@contextmanager
def opened(source: Source, artifacts: Paths, trees: Paths) -> Iterator[Checkpoint]:
    """The checkpoint with its bytes, while the context lasts."""
    with _opened(source, artifacts, trees) as checkpoint:
        yield stored_as(source.get("weights", "stored"), checkpoint)


def _described(source: Source, artifacts: Paths, trees: Paths) -> Checkpoint:
    kind = _kind(source)
    if kind == "gguf":
        header = read_gguf(source["file"], artifacts, trees)
        return gguf.checkpoint_of(header, None, files.described(source["file"]))
    if kind == "safetensors":
        shards = {}
        for item in source["files"]:
            where = files.described(item)
            with files.opened(item, artifacts, trees) as (stream, size):
                shards[where] = (None, safetensors.read_header(stream, size, where))
        return safetensors.checkpoint_of(shards, read_json(source["config"], artifacts, trees))
    return _table(source, artifacts, trees)


@contextmanager
def _opened(source: Source, artifacts: Paths, trees: Paths) -> Iterator[Checkpoint]:
    kind = _kind(source)
    if kind == "synthetic":
        from pih_steps.lower import synthetic  # numpy only where values are made

        table = _table(source, artifacts, trees)
        yield synthetic.checkpoint_of(table.where, table.config, table.tensors, source["seed"])
    elif kind == "description":
        yield _table(source, artifacts, trees)
    elif kind == "gguf":
        with files.on_disk(source["file"], artifacts, trees) as path:
            header = read_gguf(source["file"], artifacts, trees)
            yield gguf.checkpoint_of(header, path, files.described(source["file"]))
    else:
        with ExitStack() as stack:
            shards: dict[str, tuple[Path | None, safetensors.Header]] = {}
            for item in source["files"]:
                path = stack.enter_context(files.on_disk(item, artifacts, trees))
                where = files.described(item)
                with files.opened(item, artifacts, trees) as (stream, size):
                    shards[where] = (path, safetensors.read_header(stream, size, where))
            yield safetensors.checkpoint_of(shards, read_json(source["config"], artifacts, trees))


def read_gguf(reference: Reference, artifacts: Paths, trees: Paths) -> gguf.Header:
    """The header of a GGUF file."""
    with files.opened(reference, artifacts, trees) as (stream, size):
        return gguf.read_header(stream, size, files.described(reference))


def read_json(reference: Reference, artifacts: Paths, trees: Paths) -> dict[str, Any]:
    """A file that holds one JSON object."""
    where = files.described(reference)
    try:
        data = json.loads(files.read(reference, artifacts, trees).decode(), parse_int=whole)
    except (ValueError, RecursionError) as problem:
        raise BuildError(f"not JSON: {problem}", where=where, fix="fetch it again") from problem
    if not isinstance(data, dict):
        raise BuildError("not a JSON object", where=where, fix="fetch it again")
    return data


def _table(source: Source, artifacts: Paths, trees: Paths) -> Checkpoint:
    where = files.described(source["tensors"])
    table = read_json(source["tensors"], artifacts, trees)
    tensors = {name: safetensors.described_tensor(name, entry, where) for name, entry in table.items()}
    return Checkpoint(where, read_json(source["config"], artifacts, trees), tensors, no_bytes(where))


def _kind(source: Source) -> str:
    kinds = ("gguf", "safetensors", "description", "synthetic")
    kind = source.get("format")
    if kind not in kinds:
        raise BuildError(f"a checkpoint has the format {kind!r}", where="checkpoint", fix=f"one of {', '.join(kinds)}")
    return str(kind)
