"""What a Deployment Lock holds: every decision of one deployment, as frozen classes. Imports nothing of `pih`.

The order of classes' fields is the order of a lock's keys.
"""

from __future__ import annotations

from typing import Any

import attrs


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
    """context: positions of one sequence; batch: sequences at once; tokens: of one step; kv_dtype: bf16 | f32.

    spill: bytes of the host for cache pages that the devices have no room for.
    """

    context: int
    batch: int
    tokens: int
    kv_dtype: str
    spill: int


@attrs.frozen
class Service:
    """Where the worker listens, and its model's name in the API."""

    host: str
    port: int
    model_name: str


@attrs.frozen
class Weights:
    """How weights are packed and reach the worker, and when it checks them.

    format: stored | int8. delivery: embed | separate. verify: start | first-use.
    digest: of the chunk table of separate ones; '' where the profile pins none, and the worker takes any that fit.
    """

    format: str
    delivery: str
    verify: str
    digest: str

    @property
    def pinned(self) -> bool:
        """Whether the image or its lock says which bytes they are."""
        return self.delivery == "embed" or bool(self.digest)


@attrs.frozen
class Requirement:
    """A capability that a plugin needs, and the plugin that serves it."""

    capability: str
    specifier: str
    provider: str


@attrs.frozen
class RuntimeHalf:
    """What of a plugin runs in the worker. wheels: artifact names.

    host_bytes: memory it costs at ready; host_bytes_per_token: and for each token of the model's vocabulary.
    """

    package: str
    entry: str
    wheels: tuple[str, ...]
    host_bytes: int
    host_bytes_per_token: int


@attrs.frozen
class Permissions:
    """What a plugin may reach in the worker. network: none | listen. environment: variables that the host passes on."""

    network: str
    devices: tuple[str, ...]
    paths: tuple[str, ...]
    environment: tuple[str, ...]


@attrs.frozen
class Plugin:
    """A selected plugin. source: 'workspace' for the source tree's own, else where it was found.

    trust: 'built-in', 'local' (unsigned, on the profile's word) or the fingerprint of the key that signed it.
    artifact: the archive that carries it, '' for the source tree's own. manifest: sha256 of what its plugin.toml
    decides. licence: an SPDX expression or NOASSERTION. reasons: chains up to a line of the profile.
    """

    id: str
    version: str
    kind: str
    abi: int
    source: str
    trust: str
    artifact: str
    manifest: str
    licence: str
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
    """Bytes. total: of the host, weights + kv + activations + spill + host; limit is the target's memory.

    device: of each device, and device_limit its memory. Where these are not 0, weights, kv and activations lie there
    and are no part of total.
    """

    weights: int
    kv: int
    activations: int
    spill: int
    host: int
    total: int
    limit: int
    device: int
    device_limit: int


@attrs.frozen
class PlanRef:
    """The plan that the `plan` step must find."""

    sha256: str
    calls: int


@attrs.frozen
class Artifact:
    """A file from outside, by sha256 + size; purls can supply it. kind: deb | wheel | npm | hf | file | plugin.

    licence: an SPDX expression, or NOASSERTION where it is not known.
    """

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

    steps: in an order that respects their inputs; the last is the image, and needs all of them but separate weights
    and their digests.
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
    weights: Weights
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
    """A lock as its file holds it. digests: of each other key, so that an edit is noticed.

    sha256 of its canonical form and of the marks that follow, if any (`pih_runtime.canonical`).
    """

    digests: dict[str, str]
