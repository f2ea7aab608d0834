"""A checkpoint from the files that a lock names, by role; the format shows in the file itself.

    weights                     a GGUF file: it brings its own config
    weights, config             a safetensors file
    config, tensors             a description: what a plan needs; the weights come separately
    weights with a seed         made-up values in the shape of the folder's config.json and tensors.json
Each is a reference of `files`; tensors.json is an object: name → {dtype, shape}.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from pih_runtime.errors import BuildError
from pih_steps.lower import files, gguf, safetensors
from pih_steps.lower.checkpoint import Checkpoint, no_bytes
from pih_steps.lower.files import Paths, Reference

Roles = Mapping[str, Reference]


def described(roles: Roles, artifacts: Paths, trees: Paths) -> Checkpoint:
    """The checkpoint's config and tensor table, for lowering: nothing is unpacked, no bytes can be read."""
    if "tensors" in roles:
        return _described(roles["config"], roles["tensors"], artifacts, trees)
    weights = roles["weights"]
    if "seed" in weights:
        return _described(*_folder(weights), artifacts, trees)
    where = files.described(weights)
    with files.opened(weights, artifacts, trees) as (stream, size):
        if stream.read(4) == gguf.MAGIC:
            return gguf.checkpoint_of(gguf.read_header(stream, size, where), None, where)
    with files.opened(weights, artifacts, trees) as (stream, size):
        header = safetensors.read_header(stream, size, where)
        return safetensors.checkpoint_of({where: (None, header)}, _config(roles, where, artifacts, trees))


@contextmanager
def opened(roles: Roles, artifacts: Paths, trees: Paths) -> Iterator[Checkpoint]:
    """The checkpoint with its bytes, while the context lasts."""
    weights = roles["weights"]
    if "seed" in weights:
        from pih_steps.lower import synthetic  # numpy only where values are made

        table = _described(*_folder(weights), artifacts, trees)
        yield synthetic.checkpoint_of(table.where, table.config, table.tensors, weights["seed"])
        return
    where = files.described(weights)
    with files.on_disk(weights, artifacts, trees) as path, _reading(path, where) as stream:
        size = path.stat().st_size
        if stream.read(4) == gguf.MAGIC:
            yield gguf.checkpoint_of(gguf.read_header(stream, size, where), path, where)
            return
        stream.seek(0)
        header = safetensors.read_header(stream, size, where)
        yield safetensors.checkpoint_of({where: (path, header)}, _config(roles, where, artifacts, trees))


@contextmanager
def _reading(path: Any, where: str) -> Iterator[Any]:
    try:
        stream = path.open("rb")
    except OSError as problem:
        raise BuildError(f"cannot read: {problem.strerror}", where=where, fix="fetch it again") from problem
    with stream:
        yield stream


def _folder(weights: Reference) -> tuple[Reference, Reference]:
    return {"tree": weights["tree"], "member": "config.json"}, {"tree": weights["tree"], "member": "tensors.json"}


def _described(config: Reference, tensors: Reference, artifacts: Paths, trees: Paths) -> Checkpoint:
    where = files.described(tensors)
    table = read_json(tensors, artifacts, trees)
    described_tensors = {name: safetensors.described_tensor(name, entry, where) for name, entry in table.items()}
    return Checkpoint(where, read_json(config, artifacts, trees), described_tensors, no_bytes(where))


def _config(roles: Roles, where: str, artifacts: Paths, trees: Paths) -> dict[str, Any]:
    if "config" not in roles:
        raise BuildError("a safetensors file needs its config.json beside it", where=where, fix="set model.config in the profile")
    return read_json(roles["config"], artifacts, trees)


def read_json(reference: Reference, artifacts: Paths, trees: Paths) -> dict[str, Any]:
    """A file that holds one JSON object."""
    where = files.described(reference)
    try:
        data = json.loads(files.read(reference, artifacts, trees))
    except (ValueError, RecursionError) as problem:
        raise BuildError(f"not JSON: {problem}", where=where, fix="fetch it again") from problem
    if not isinstance(data, dict):
        raise BuildError("not a JSON object", where=where, fix="fetch it again")
    return data
