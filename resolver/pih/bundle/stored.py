"""An image in podman's or docker's store, read through skopeo, which writes it out as a layout.

Its layers may be gigabytes: they are read once, to prove that they are what the image's configuration names, and not
kept. What stays in the store is a layout without layers, with the two files of the image that say what is in it.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

from pih.build import command, made
from pih.build.progress import FetchAdvanced, FetchDone, FetchFailed, FetchStarted, Listener
from pih.build.store import Store
from pih.bundle import layout as layouts
from pih_runtime.errors import FetchError, SealError, UsageError

# How a user names a store: the engine that is asked for the image's id, and skopeo's name of the store.
_ENGINES = {"podman": "containers-storage", "docker": "docker-daemon", "docker-daemon": "docker-daemon"}
_DIRECT = "containers-storage"  # a name of skopeo's own: it may hold the place of a store
_ENGINE_OF = {"containers-storage": "podman", "docker-daemon": "docker"}
_NAME = re.compile(r"[A-Za-z0-9@\[][^\s\0]*")
_ID = re.compile(r"(?:sha256:)?([0-9a-f]{64})")
_MEMBERS = (layouts.BUNDLE_FILE, "pih/lock.json")
_WHAT = "what was read of an image"

Run = Callable[[str, Sequence[str], str], str]


@attrs.frozen
class Named:
    """An image as the command line names it. transport: skopeo's. asked: whether the engine is asked for its id."""

    text: str
    transport: str
    name: str
    asked: bool

    @property
    def engine(self) -> str:
        """Whose store it is."""
        return _ENGINE_OF[self.transport]


@attrs.frozen
class Kept:
    """What stays of an image. path: a layout without layers, and the files that describe it.

    whole: its manifest is the one that the image came with; else skopeo made one for layers that are not compressed.
    """

    path: Path
    whole: bool


@attrs.frozen
class _Found:
    """Where skopeo finds the image, and what it is. size: bytes of its files, 0 where not known."""

    source: str
    key: str
    size: int
    manifest: str


def named(text: str) -> Named | None:
    """`podman:NAME`, `docker:NAME`, or skopeo's name of either store; None where it is a path."""
    scheme, colon, name = text.partition(":")
    if not colon or (scheme not in _ENGINES and scheme != _DIRECT):
        return None
    if not _NAME.fullmatch(name):
        raise UsageError(f"{name!r} is no name of an image", where=text, fix=f"{scheme}:NAME[:TAG]")
    return Named(text, _ENGINES.get(scheme, _DIRECT), name, scheme != _DIRECT)


def kept(image: Named, store: Store, environment: Mapping[str, str], listener: Listener) -> Kept:
    """Find the image, and read it whole unless that was done before.

    Raises FetchError where the engine or skopeo does not give it, SealError where its layers are not what they should
    be or it was not made by pih.
    """
    with store.workspace() as work:

        def run(client: str, arguments: Sequence[str], folder: str = "asked") -> str:
            return _run(client, arguments, work / folder, environment, listener, image.text)

        found = _engines(image, run) if image.asked else _skopeos(f"{image.transport}:{image.name}", run)
        whole = _fits(found.manifest)
        if entry := made.find(store, "images", found.key, name=_WHAT, listener=listener):
            return Kept(entry.path, whole)
        listener(FetchStarted(image.text, found.size))
        try:
            arguments = ["copy", "--quiet", "--dest-oci-accept-uncompressed-layers", found.source, "oci:layout"]
            run("skopeo", arguments, "copied")
            copy = _uncompressed(layouts.read(work / "copied" / "layout"))
            _check(copy, found)
            _write(copy, found.manifest if whole else "", work / "entry" / "output")
        except BaseException:
            listener(FetchFailed(image.text))
            raise
        listener(FetchDone(image.text, f"{image.engine}'s store"))
        entry = made.publish(store, work / "entry", "images", found.key, name=_WHAT, listener=listener, facts={})
        return Kept(entry.path, whole)


def _run(
    client: str,
    arguments: Sequence[str],
    folder: Path,
    environment: Mapping[str, str],
    listener: Listener,
    name: str,
) -> str:
    folder.mkdir(exist_ok=True)
    missing = f"install {client}, or name a layout or an archive of the image"
    advanced = (lambda done: listener(FetchAdvanced(name, done))) if folder.name == "copied" else _nothing
    try:
        return command.run(client, [client, *arguments], folder, environment, missing=missing, advanced=advanced)
    except FetchError as failure:
        raise FetchError(failure.what, where=name, fix=failure.fix or f"see what `{client}` says of it") from failure


def _nothing(done: int) -> None:
    """Asking takes no time worth showing."""


def _engines(image: Named, run: Callable[..., str]) -> _Found:
    """By the engine's own rules for short names; then the image is asked for by its id, which does not move."""
    said = run(image.engine, ["image", "inspect", "--format", "{{.Id}} {{.Size}}", image.name]).split()
    identity = _ID.fullmatch(said[0]) if len(said) == 2 and said[1].isdigit() else None
    if identity is None:
        raise FetchError(f"{image.engine} gives no id of the image: {' '.join(said)[:100]!r}", where=image.text)
    if image.engine == "docker":  # its store keeps no manifest, and to ask skopeo for one is to copy the image
        return _Found(f"docker-daemon:sha256:{identity[1]}", identity[1], int(said[1]), "")
    return attrs.evolve(_skopeos(f"{image.transport}:@{identity[1]}", run), size=int(said[1]))


def _skopeos(source: str, run: Callable[..., str]) -> _Found:
    manifest = run("skopeo", ["inspect", "--raw", source])
    return _Found(source, hashlib.sha256(manifest.encode()).hexdigest(), 0, manifest)


def _fits(manifest: str) -> bool:
    """Whether the store's manifest is one of OCI's; those that docker builds are of another type."""
    return _parsed(manifest).get("mediaType") == layouts.MANIFEST


def _parsed(manifest: str) -> dict[str, Any]:
    try:
        data = json.loads(manifest or "{}")
    except (ValueError, RecursionError):
        return {}
    return data if isinstance(data, dict) else {}


def _uncompressed(copy: layouts.Layout) -> layouts.Layout:
    """Layers as they are: skopeo leaves the old type on one that it did not compress again."""
    layers = (
        attrs.evolve(layer, media_type=layouts.LAYER_TAR) if layer.digest == layer.diff_id else layer
        for layer in copy.layers
    )
    return attrs.evolve(copy, layers=tuple(layers))


def _check(copy: layouts.Layout, found: _Found) -> None:
    """Every layer is what the configuration names, and that is the one of the image that was asked for."""
    layouts.verify(copy)
    config = _parsed(found.manifest).get("config")
    wanted = config.get("digest") if isinstance(config, dict) else None
    if wanted is not None and _fits(found.manifest) and wanted != copy.config_digest:
        what = f"the store gives configuration {copy.config_digest} for an image with {wanted}"
        raise SealError(what, where=found.source, fix="load the image again")


def _write(copy: layouts.Layout, manifest: str, output: Path) -> None:
    """The image without its layers. manifest: in place of the copy's own, '' for that."""
    blobs = output / "blobs" / "sha256"
    blobs.mkdir(parents=True)
    text = manifest.encode() or layouts.blob_path(copy.path, copy.digest).read_bytes()
    digest = hashlib.sha256(text).hexdigest()
    (blobs / digest).write_bytes(text)
    config = copy.config_digest.removeprefix("sha256:")
    (blobs / config).write_bytes(layouts.blob_path(copy.path, copy.config_digest).read_bytes())
    entry = {"mediaType": layouts.MANIFEST, "digest": f"sha256:{digest}", "size": len(text)}
    (output / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": [entry]}))
    (output / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')
    for name in _MEMBERS:
        place = output / "described" / name.rpartition("/")[2]
        place.parent.mkdir(exist_ok=True)
        place.write_bytes(layouts.member(copy, name))
