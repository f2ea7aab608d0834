"""One side of a comparison: what a bundle or a lock says of a deployment, without its reasons.

A lock knows no sizes, layers and files of an image: those are None here, never an estimate.
"""

from __future__ import annotations

import attrs

from pih import licences
from pih.inspect.bundle import checkpoint, components, known, origin
from pih.inspect.opened import Opened
from pih.inspect.overview import fallbacks, permissions
from pih.lock import Binding, Lock
from pih.structure import unstructure
from pih_runtime import canonical

_SHIPPED = ("base", "wheels")  # steps whose artifacts are in the image as they are


@attrs.frozen
class Weights:
    """artifact: '' for made-up ones. delivery: embed | separate. formats: of the ops that read them: `linear q4_1`.

    verify: start | first-use. pin: the digest that separate ones must have, '' for none.
    """

    plugin: str
    artifact: str
    source: str
    delivery: str
    formats: tuple[str, ...]
    verify: str = "start"
    pin: str = ""


@attrs.frozen
class Plugin:
    """may: what it may reach of the host in the worker. source: '' for the source tree's own. manifest: its digest."""

    id: str
    version: str
    kind: str
    source: str
    may: tuple[str, ...]
    manifest: str = ""


@attrs.frozen
class Artifact:
    """part: base, wheels: of the image as it is; model: what the weights or the text are made from; build: no part."""

    name: str
    version: str
    kind: str
    sha256: str
    part: str


@attrs.frozen
class Kernel:
    """A binding of the plan. form: all else of it, so that two can be told apart. mode: as the lock has it."""

    op: str
    symbol: str
    form: str
    mode: str


@attrs.frozen
class Layer:
    """digest: of the archive in it, '' of an unpacked root. size: of its files. compressed: of its blob, None there."""

    name: str
    digest: str
    size: int
    compressed: int | None


@attrs.frozen
class Component:
    """All files of one origin, as bundle.json names them."""

    name: str
    version: str
    size: int


@attrs.frozen
class File:
    """content: its digest, or `-> target` of a link."""

    path: str
    size: int
    content: str
    component: str
    layer: str


@attrs.frozen
class Image:
    """What a bundle knows beside its lock. digest: of the manifest, '' where there is none."""

    digest: str
    layers: tuple[Layer, ...]
    components: tuple[Component, ...]
    files: tuple[File, ...]

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(layer.size for layer in self.layers)

    @property
    def compressed(self) -> int | None:
        """Bytes of all layers as they are shipped, where they are known."""
        sizes = [layer.compressed for layer in self.layers if layer.compressed is not None]
        return sum(sizes) if len(sizes) == len(self.layers) else None


@attrs.frozen
class Facts:
    """A side. where: what the user named. image: None of a lock.

    settings: of target, limits and service, by key. memory: the budget's bytes. plan: its calls and digest. licences:
    by component, and by artifact. parts: a digest of each part of the lock, so that no change of it goes unnoticed.
    """

    where: str
    name: str
    settings: dict[str, str]
    weights: Weights
    plugins: tuple[Plugin, ...]
    artifacts: tuple[Artifact, ...]
    licences: dict[str, str]
    kernels: tuple[Kernel, ...]
    fallbacks: tuple[str, ...]
    memory: dict[str, int]
    plan: str
    parts: dict[str, str]
    image: Image | None


def of_lock(lock: Lock, where: str) -> Facts:
    """The side that a lock is."""
    sections = {"target": lock.target, "limits": lock.limits, "service": lock.service}
    return Facts(
        where=where,
        name=lock.profile.name,
        settings={f"{name}.{key}": text for name, part in sections.items() for key, text in _flat(part).items()},
        weights=_weights(lock),
        plugins=tuple(
            Plugin(row.id, row.version, row.kind, origin(row), permissions(row), row.manifest) for row in lock.plugins
        ),
        artifacts=_artifacts(lock),
        licences=dict(sorted(licences.of_components(lock).items())),
        kernels=tuple(_kernel(row) for row in lock.bindings),
        fallbacks=tuple(fallbacks(lock)),
        memory=unstructure(lock.budget),
        plan=f"{lock.plan.calls} calls, sha256:{lock.plan.sha256[:12]}",
        parts=canonical.digests(unstructure(lock)),
        image=None,
    )


def of_bundle(held: Opened, where: str) -> Facts:
    """The side that a bundle is: its lock's, and its image."""
    contents, lock = held.contents, held.lock
    image = Image(
        digest=contents.digest,
        layers=tuple(Layer(row.name, row.diff_id, row.size, row.compressed or None) for row in contents.layers),
        components=tuple(Component(row.name, row.version, row.size) for row in components(contents, known(lock))),
        files=tuple(
            File(row.path, row.size, row.digest or f"-> {row.target}", row.component, row.layer)
            for row in contents.files
        ),
    )
    return attrs.evolve(of_lock(lock, where), image=image)


def _flat(value: object) -> dict[str, str]:
    """An attrs instance as text by key, nested ones with a dot; None has no key."""
    found: dict[str, str] = {}
    for key, item in unstructure(value).items():
        if isinstance(item, dict):
            found |= {f"{key}.{name}": str(inner) for name, inner in item.items()}
        elif item is not None:
            found[key] = str(item)
    return found


def _kernel(row: Binding) -> Kernel:
    form = f"{row.weight} {row.layout} {row.activation} {row.source} {row.precision} {row.path}"
    return Kernel(row.op, row.symbol, form.strip(), row.mode)


def _weights(lock: Lock) -> Weights:
    formats = sorted({f"{item.op} {item.weight}" for item in lock.bindings if item.op in ("linear", "embed")})
    return Weights(
        plugin=str(lock.model.get("plugin")),
        artifact=str(checkpoint(lock).get("artifact", "")),
        source=str(checkpoint(lock)["source"]),
        delivery=lock.weights.delivery,
        formats=tuple(formats),
        verify=lock.weights.verify,
        pin=lock.weights.digest,
    )


def _artifacts(lock: Lock) -> tuple[Artifact, ...]:
    parts = {name: step.run for step in lock.build.steps if step.run in _SHIPPED for name in step.artifacts}
    model = {str(file["artifact"]) for file in lock.model.values() if isinstance(file, dict) and "artifact" in file}
    return tuple(
        Artifact(
            item.name,
            item.version,
            item.kind,
            item.sha256,
            "model" if item.name in model else parts.get(item.name, "build"),
        )
        for item in lock.artifacts
        if item.kind != "plugin"  # told as the plugin that it carries
    )
