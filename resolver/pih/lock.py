"""The Deployment Lock: every decision of one deployment, as data. Reading and writing, nothing else.

JSON, UTF-8, two-space indent, keys in the order of these classes, lists in the order the resolver gives
(which is stable), so that a diff of two locks reads well. Bazel, Nix and the worker read the same file.
"""

from __future__ import annotations

from typing import Any

import attrs

SCHEMA = 1


@attrs.frozen
class ProfileRef:
    """The intent this lock answers: sha256 of the profile's canonical form, comments and order left out."""

    name: str
    file: str
    sha256: str


@attrs.frozen
class Target:
    os: str
    arch: str
    isa: str
    threads: int
    memory_bytes: int


@attrs.frozen
class Limits:
    """context: positions of one sequence; batch: sequences at once; tokens: of one step; kv_dtype: bf16 | f32."""

    context: int
    batch: int
    tokens: int
    kv_dtype: str


@attrs.frozen
class Service:
    host: str
    port: int
    model_name: str


@attrs.frozen
class Requirement:
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
    network: str
    devices: tuple[str, ...]
    paths: tuple[str, ...]


@attrs.frozen
class Plugin:
    """A selected plugin. source: 'workspace' for the built-in catalog. reasons: chains up to a line of the profile."""

    id: str
    version: str
    kind: str
    abi: int
    source: str
    provides: dict[str, str]
    requires: tuple[Requirement, ...]
    reasons: tuple[str, ...]
    runtime: RuntimeHalf | None
    settings: dict[str, Any]
    permissions: Permissions


@attrs.frozen
class Binding:
    """One op of the plan served by one kernel: which symbol, from which source, with which constants."""

    op: str
    weight: str
    layout: str
    activation: str
    template: str
    source: str
    constants: dict[str, int]
    symbol: str
    precision: str


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
    sha256: str
    calls: int


@attrs.frozen
class Artifact:
    """A file from outside, by sha256 + size; purls can supply it. kind: deb | wheel | npm | hf | file."""

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
    """One build step: a pure function of its inputs. run: its program; trees: paths in the source tree; tools: wheels on its path."""

    id: str
    run: str
    params: dict[str, Any]
    artifacts: tuple[str, ...]
    trees: tuple[str, ...]
    steps: tuple[str, ...]
    tools: tuple[str, ...]


@attrs.frozen
class BuildGraph:
    """interpreter: the .debs of the pinned Python that runs every step. steps: in an order that respects inputs; the last is the image."""

    interpreter: tuple[str, ...]
    steps: tuple[Step, ...]


@attrs.frozen
class Lock:
    schema: int
    pih: str
    profile: ProfileRef
    catalog_sha256: str
    target: Target
    model: dict[str, Any]
    limits: Limits
    service: Service
    delivery: str
    plugins: tuple[Plugin, ...]
    start_order: tuple[str, ...]
    bindings: tuple[Binding, ...]
    fallbacks: tuple[str, ...]
    budget: Budget
    plan: PlanRef
    artifacts: tuple[Artifact, ...]
    build: BuildGraph
