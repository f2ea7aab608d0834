"""The Deployment Lock: every decision of one deployment, as data. Reading and writing, nothing else.

JSON, UTF-8, two-space indent, keys in the order of these classes, lists in the order the resolver gives
(which is stable), so that a diff of two locks reads well. Bazel, Nix and the worker read the same file.
"""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any

import attrs

from pih import VERSION
from pih.structure import StructureError, dotted, structure, unstructure
from pih_runtime import canonical
from pih_runtime.errors import LockError

SCHEMA = 1
_MOST = 1 << 26  # bytes; a lock of ten thousand artifacts has a tenth of it
PIH = VERSION


@attrs.frozen
class ProfileRef:
    """The intent this lock answers: sha256 of the profile's canonical form, comments and order left out."""

    name: str
    file: str
    sha256: str


@attrs.frozen
class Device:
    """Accelerators of the target, all alike. memory_bytes: of each. sm: '' for what is no GPU. driver: '' for any."""

    count: int
    sm: str
    memory_bytes: int
    driver: str


@attrs.frozen
class Target:
    """The machine that the deployment is compiled for; isa is never `native` here. device: null for the CPU alone."""

    os: str
    arch: str
    isa: str
    threads: int
    memory_bytes: int
    device: Device | None


@attrs.frozen
class Limits:
    """context: positions of one sequence; batch: sequences at once; tokens: of one step; kv_dtype: bf16 | f32."""

    context: int
    batch: int
    tokens: int
    kv_dtype: str


@attrs.frozen
class Service:
    """Where the worker listens, and its model's name in the API."""

    host: str
    port: int
    model_name: str


@attrs.frozen
class Requirement:
    """A capability that a plugin needs, and the plugin that serves it."""

    capability: str
    specifier: str
    provider: str


@attrs.frozen
class RuntimeHalf:
    """What of a plugin runs in the worker. wheels: artifact names. host_bytes: memory it costs at ready."""

    package: str
    entry: str
    wheels: tuple[str, ...]
    host_bytes: int


@attrs.frozen
class Permissions:
    """What a plugin may reach in the worker. network: none | listen."""

    network: str
    devices: tuple[str, ...]
    paths: tuple[str, ...]


@attrs.frozen
class Plugin:
    """A selected plugin. source: 'workspace' for the source tree's own, else where it was found.

    trust: 'built-in', 'local' (unsigned, on the profile's word) or the fingerprint of the key that signed it.
    artifact: the archive that carries it, '' for the source tree's own. manifest: sha256 of what its plugin.toml
    decides. reasons: chains up to a line of the profile.
    """

    id: str
    version: str
    kind: str
    abi: int
    source: str
    trust: str
    artifact: str
    manifest: str
    provides: dict[str, str]
    requires: tuple[Requirement, ...]
    reasons: tuple[str, ...]
    runtime: RuntimeHalf | None
    settings: dict[str, Any]
    permissions: Permissions


@attrs.frozen
class Binding:
    """One op of the plan served by one kernel: which symbol, from which source, with which constants.

    path: `fast`, or `reference` for the scalar one, which is slower. mode: the least exact type that sums pass through.
    """

    op: str
    weight: str
    layout: str
    activation: str
    template: str
    source: str
    constants: dict[str, int]
    symbol: str
    precision: str
    mode: str
    path: str


@attrs.frozen
class Budget:
    """Bytes. total = weights + kv + activations + spill + host; limit is the target's memory."""

    weights: int
    kv: int
    activations: int
    spill: int
    host: int
    total: int
    limit: int


@attrs.frozen
class PlanRef:
    """The plan that the `plan` step must find."""

    sha256: str
    calls: int


@attrs.frozen
class Artifact:
    """A file from outside, by sha256 + size; purls can supply it. kind: deb | wheel | npm | hf | file | plugin."""

    name: str
    version: str
    kind: str
    sha256: str
    size: int
    purls: tuple[str, ...]
    licence: str
    reasons: tuple[str, ...]


@attrs.frozen
class Step:
    """One build step: a pure function of its inputs.

    run: its program. trees: paths in the source tree; 'lock' is this file. tools: wheels on its path.
    """

    id: str
    run: str
    params: dict[str, Any]
    artifacts: tuple[str, ...]
    trees: tuple[str, ...]
    steps: tuple[str, ...]
    tools: tuple[str, ...]


@attrs.frozen
class Seed:
    """The first executable of builders that bring none: `member` of the package `deb`, in a tar of one file `busybox`.

    sha256, size: of that tar, which `pih fetch` makes.
    """

    deb: str
    member: str
    sha256: str
    size: int


@attrs.frozen
class BuildGraph:
    """interpreter: the .debs of the pinned Python that runs every step. seed: what Bazel and Nix unpack them with.

    steps: in an order that respects their inputs; the last is the image, and needs all of them but separate weights.
    """

    interpreter: tuple[str, ...]
    seed: Seed
    steps: tuple[Step, ...]


@attrs.frozen
class Lock:
    """Every decision of one deployment. requires: the profile's own needs, each with the plugin that serves it."""

    schema: int
    pih: str
    profile: ProfileRef
    target: Target
    model: dict[str, Any]
    limits: Limits
    service: Service
    delivery: str
    requires: tuple[Requirement, ...]
    plugins: tuple[Plugin, ...]
    start_order: tuple[str, ...]
    bindings: tuple[Binding, ...]
    fallbacks: tuple[str, ...]
    budget: Budget
    plan: PlanRef
    artifacts: tuple[Artifact, ...]
    build: BuildGraph


@attrs.frozen
class LockFile(Lock):
    """A lock as its file holds it. digests: sha256 of each other key's canonical form, so that an edit is noticed."""

    digests: dict[str, str]


def path_for(profile: Path) -> Path:
    """Where a profile's lock lies: beside it, `x.toml` and `x.lock.json`."""
    return profile.with_suffix(".lock.json")


def to_json(lock: Lock) -> str:
    """The lock's text: the same lock, the same bytes."""
    return json.dumps(canonical.sealed(unstructure(lock)), indent=2, ensure_ascii=False) + "\n"


def from_json(text: str | bytes, where: str) -> Lock:
    """Parse and check; raises LockError (exit 5) where it is not a lock of this schema, as `to_json` wrote it."""
    fix = "write the lock again: pih lock"
    if len(text) > _MOST:
        raise LockError(f"more than {_MOST} bytes are too many for a lock", where=where, fix=fix)
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as problem:
        raise LockError(f"not JSON: {_reason(problem)}", where=where, fix=fix) from problem
    schema = data.get("schema") if isinstance(data, dict) else None
    if schema != SCHEMA:
        raise LockError(f"lock schema {schema!r} is not {SCHEMA}", where=where, fix=fix)
    try:
        found = structure(data, LockFile)
        canonical.check(data, fix=fix)
    except StructureError as failure:
        first = failure.problems[0]
        raise LockError(f"{dotted(first.path)}: {first.what}", where=where, fix=first.fix or fix) from failure
    except LockError as edited:
        raise LockError(edited.what, where=where, fix=edited.fix) from edited
    return Lock(**{field.name: getattr(found, field.name) for field in attrs.fields(Lock)})


def _reason(problem: Exception) -> str:
    return "nested too deeply" if isinstance(problem, RecursionError) else str(problem)


def read(path: Path) -> Lock:
    """Read and check a lock."""
    try:
        with path.open("rb") as reader:
            raw = reader.read(_MOST + 1)
    except OSError as problem:
        raise LockError(
            f"cannot read the lock: {problem.strerror}", where=str(path), fix="write it: pih lock"
        ) from problem
    return from_json(raw, str(path))


def write(lock: Lock, path: Path) -> None:
    """Write beside, fsync, rename: a reader sees the old lock or the new one, never a half."""
    handle, beside = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as writer:
            writer.write(to_json(lock))
            writer.flush()
            os.fsync(writer.fileno())
        Path(beside).chmod(0o644)
        Path(beside).replace(path)
    except BaseException:
        Path(beside).unlink()
        raise
