"""Where a checkpoint comes from, as a profile's model source resolves to: data that the lock holds.

    {"format": "gguf", "file": REFERENCE}
    {"format": "safetensors", "files": [REFERENCE, ...], "config": REFERENCE}
    {"format": "description", "config": REFERENCE, "tensors": REFERENCE}              no bytes: weights come separately
    {"format": "synthetic", "config": REFERENCE, "tensors": REFERENCE, "seed": 0}
References are those of `files`. tensors.json is an object: name → {dtype, shape}.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from pih_runtime.errors import BuildError
from pih_steps.lower import files, gguf, safetensors
from pih_steps.lower.checkpoint import Checkpoint, no_bytes

Source = Mapping[str, Any]
Paths = Mapping[str, Path]


def described(source: Source, artifacts: Paths, trees: Paths) -> Checkpoint:
    """The checkpoint's config and tensor table, for lowering; nothing is unpacked, no bytes can be read."""
    kind = _kind(source)
    if kind == "gguf":
        where = files.described(source["file"])
        with files.opened(source["file"], artifacts, trees) as (stream, size):
            return gguf.checkpoint_of(gguf.read_header(stream, size, where), None, where)
    with _opened(source, artifacts, trees, kind) as checkpoint:
        return Checkpoint(checkpoint.where, checkpoint.config, checkpoint.tensors, no_bytes(checkpoint.where))


@contextmanager
def opened(source: Source, artifacts: Paths, trees: Paths) -> Iterator[Checkpoint]:
    """The checkpoint with its bytes, while the context lasts."""
    with _opened(source, artifacts, trees, _kind(source)) as checkpoint:
        yield checkpoint


@contextmanager
def _opened(source: Source, artifacts: Paths, trees: Paths, kind: str) -> Iterator[Checkpoint]:
    if kind == "gguf":
        with files.on_disk(source["file"], artifacts, trees) as path, path.open("rb") as stream:
            where = files.described(source["file"])
            yield gguf.checkpoint_of(gguf.read_header(stream, path.stat().st_size, where), path, where)
        return
    config = _json(source["config"], artifacts, trees)
    if kind == "safetensors":
        with ExitStack() as stack:
            paths = [stack.enter_context(files.on_disk(item, artifacts, trees)) for item in source["files"]]
            yield safetensors.checkpoint_of(paths, config)
        return
    where = files.described(source["tensors"])
    table = _json(source["tensors"], artifacts, trees)
    tensors = {name: safetensors.described_tensor(name, entry, where) for name, entry in table.items()}
    if kind == "synthetic":
        from pih_steps.lower import synthetic  # noqa: PLC0415 - numpy only where values are made

        yield synthetic.checkpoint_of(where, config, tensors, source["seed"])
    else:
        yield Checkpoint(where, config, tensors, no_bytes(where))


def _kind(source: Source) -> str:
    kinds = ("gguf", "safetensors", "description", "synthetic")
    kind = source.get("format")
    if kind not in kinds:
        raise BuildError(f"a checkpoint has the format {kind!r}", where="checkpoint", fix=f"one of {', '.join(kinds)}")
    return str(kind)


def _json(reference: files.Reference, artifacts: Paths, trees: Paths) -> dict[str, Any]:
    where = files.described(reference)
    try:
        data = json.loads(files.read(reference, artifacts, trees))
    except (ValueError, RecursionError) as problem:
        raise BuildError(f"not JSON: {problem}", where=where, fix="fetch it again") from problem
    if not isinstance(data, dict):
        raise BuildError("not a JSON object", where=where, fix="fetch it again")
    return data
