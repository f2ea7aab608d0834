"""What is in a bundle: identity, layers, files with their reasons, sizes by component."""

from __future__ import annotations

import functools
import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import attrs

from pih.bundle import layout as layouts
from pih.lock import Lock, Plugin
from pih_runtime.errors import LockError, SealError

_FIX = "build the bundle again, or copy it again from where it came"


@attrs.frozen
class File:
    """A file of the image. digest: '' for a link. layer: the name of the layer that holds it."""

    path: str
    size: int
    digest: str
    target: str
    component: str
    reason: str
    layer: str


@attrs.frozen
class Layer:
    """A layer in words. size: of its files; digest, compressed: of its blob; diff_id: of the archive in it.

    What is not known is '' and 0: an unpacked root has no blobs, an engine's store may have thrown them away.
    """

    name: str
    digest: str
    size: int
    compressed: int
    diff_id: str = ""


@attrs.frozen
class Component:
    """All files of one origin. size: unpacked. licence: '' where nothing says it."""

    name: str
    version: str
    size: int
    reason: str
    licence: str = ""
    files: int = 0


@attrs.frozen
class Contents:
    """A bundle as an operator sees it; sizes in bytes. reference: the image's name for engines.

    digest: of the manifest. config: of the configuration, which engines call the image's id. content: of all layers'
    archives, the same whatever their compression. form: what the bundle was read from, in words. Where the form has
    no such thing, each is ''.
    """

    name: str
    digest: str
    lock: str
    reference: str
    layers: tuple[Layer, ...]
    files: tuple[File, ...]
    config: str = ""
    content: str = ""
    form: str = attrs.field(default="an image layout", eq=False)

    @property
    def size(self) -> int:
        """Bytes of all files, unpacked."""
        return sum(layer.size for layer in self.layers)

    @property
    def compressed(self) -> int:
        """Bytes of all layers, as they are shipped."""
        return sum(layer.compressed for layer in self.layers)


def contents(path: Path) -> Contents:
    """Read a layout's list of files; raises SealError where it does not fit the image."""
    return of_layout(layouts.read(path))


def of_layout(image: layouts.Layout) -> Contents:
    """What is in a layout that was read already."""
    return described(image, layouts.bundle_file(image))


def described(image: layouts.Layout, data: dict[str, Any]) -> Contents:
    """An image and its parsed bundle.json; none of its layers is read."""
    where = str(image.path)
    name, lock, files = listed(data, where)
    try:
        titles = [str(entry["comment"]) for entry in image.config["history"]]
    except (KeyError, TypeError, ValueError) as problem:
        raise SealError(
            "the image's layers have no names: its history is not that of a bundle", where=where, fix=_FIX
        ) from problem
    if len(titles) != len(image.layers):
        raise SealError(f"{len(image.layers)} layers, and {len(titles)} names for them", where=where, fix=_FIX)
    layers = tuple(
        Layer(title, layer.digest, sum(file.size for file in files if file.layer == title), layer.size, layer.diff_id)
        for title, layer in zip(titles, image.layers, strict=True)
    )
    content = chain_id(layer.diff_id for layer in image.layers)
    return Contents(name, image.digest, lock, image.reference, layers, files, image.config_digest, content)


def chain_id(diff_ids: Iterable[str]) -> str:
    """One digest for the archives of a stack of layers, the lowest first: ChainID of the OCI image specification."""

    def stacked(below: str, upper: str) -> str:
        return "sha256:" + hashlib.sha256(f"{below} {upper}".encode()).hexdigest()

    found = list(diff_ids)
    return functools.reduce(stacked, found) if found else ""


def listed(data: dict[str, Any], where: str) -> tuple[str, str, tuple[File, ...]]:
    """Name, digest of the lock, and files, of a parsed bundle.json."""
    try:
        files = tuple(
            File(
                path=str(line["path"]),
                size=int(line["size"]),
                digest=str(line.get("digest", "")),
                target=str(line.get("target", "")),
                component=str(line["component"]),
                reason=str(line["reason"]),
                layer=str(line["layer"]),
            )
            for line in data["files"]
        )
        return str(data["name"]), str(data["lock"]), files
    except (KeyError, TypeError, ValueError, OverflowError) as problem:
        raise SealError(
            "the bundle's list of files is not right: a line has no path, size, component, reason or layer",
            where=where,
            fix=_FIX,
        ) from problem


def known(lock: Lock) -> dict[str, tuple[str, str]]:
    """Version of each component, and the reason that the lock gives for it."""
    found = {item.name: (item.version, item.reasons[0]) for item in lock.artifacts if item.reasons}
    found |= {plugin.id: (plugin.version, plugin.reasons[0]) for plugin in lock.plugins if plugin.reasons}
    source = f"model.weights {checkpoint(lock)['source']}"
    text = "tokenizer and chat template of the model"
    return found | {"pih": (lock.pih, "the runtime of every bundle"), "weights": ("", source), "model": ("", text)}


def checkpoint(lock: Lock) -> dict[str, Any]:
    """What the lock says of the model's weights; raises LockError where it says nothing, or names no model plugin."""
    weights = lock.model.get("weights")
    if not isinstance(weights, dict) or not {"source"} <= weights.keys() or "plugin" not in lock.model:
        raise LockError("model: it names no plugin or no weights", fix="write the lock again: pih lock")
    return weights


def origin(plugin: Plugin) -> str:
    """Where a plugin from outside comes from and on whose word; '' for the source tree's own."""
    if plugin.source == "workspace":
        return ""
    word = "unsigned, trusted by the profile" if plugin.trust == "local" else f"signed by {plugin.trust}"
    return f"from {plugin.source}, {word}"


def components(
    held: Contents, facts: dict[str, tuple[str, str]], licensed: Mapping[str, str] = MappingProxyType({})
) -> list[Component]:
    """Files by component, the largest first. facts: version and reason by name, as `known` gives them.

    licensed: licences by name, as `licences.of_components` gives them.
    """
    sizes: dict[str, int] = {}
    reasons: dict[str, str] = {}
    count = Counter(file.component for file in held.files)
    for file in held.files:
        sizes[file.component] = sizes.get(file.component, 0) + file.size
        reasons.setdefault(file.component, file.reason)
    rows = []
    for name, size in sizes.items():
        version, reason = facts.get(name, ("", reasons[name]))
        licence = licensed.get(name, "")
        rows.append(Component(name, version, size, reason, licence, count[name]))
    return sorted(rows, key=lambda row: (-row.size, row.name))


def as_json(held: Contents) -> dict[str, Any]:
    """`{identity, layers, files}`, the shape that scripts rely on."""
    names = ("name", "digest", "lock", "reference", "config", "content", "form")
    return {
        "identity": {name: getattr(held, name) for name in names},
        "layers": [attrs.asdict(layer) for layer in held.layers],
        "files": [
            {key: value for key, value in attrs.asdict(file).items() if value != "" or key == "digest"}
            for file in held.files
        ],
    }
