"""An image in podman's or docker's store, read through skopeo, which writes it out as a layout.

Its layers may be gigabytes: they are read once, to prove that they are what the image's configuration names, and not
kept. What stays in the store is a layout without layers, with the two files of the image that say what is in it.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import attrs

from pih.build import command, made
from pih.build.progress import FetchAdvanced, FetchDone, FetchFailed, FetchStarted, Listener
from pih.build.store import Store
from pih.bundle import layout as layouts
from pih.reading import json_of
from pih_runtime.errors import FetchError, PihError, SealError, UsageError

# How a user names a store: the engine that is asked for the image's id, and skopeo's name of the store.
_ENGINES = {"podman": "containers-storage", "docker": "docker-daemon", "docker-daemon": "docker-daemon"}
_SAVED = "docker-archive:image.tar"  # what docker's client wrote into the folder of the copy
_DIRECT = "containers-storage"  # a name of skopeo's own: it may hold the place of a store
_ENGINE_OF = {"containers-storage": "podman", "docker-daemon": "docker"}
_NAME = re.compile(r"[A-Za-z0-9@\[][^\s\0]*")
_ID = re.compile(r"(?:sha256:)?([0-9a-f]{64})")
_MEMBERS = (layouts.BUNDLE_FILE, "pih/lock.json")
_CODE = ("pih/kernels/pack.cubin", "pih/kernels/pack.json", "pih/plan.json")  # where there is code for a device
_WHAT = "what was read of an image"

Run = Callable[..., str]


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
    """Where skopeo finds the image, and what it is. size: bytes of its files, 0 where not known.

    key: names it in our own store; of docker's the image's id, which is the configuration's digest in most of its
    stores. config: that digest where the manifest says it, else ''.
    """

    source: str
    key: str
    size: int
    manifest: str
    config: str


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
        run = _runner(work, environment, listener, image.text)
        found = _find(image, run)
        whole = _fits(found.manifest)
        if entry := made.find(store, "images", found.key, name=_WHAT, listener=listener):
            return Kept(entry.path, whole)
        with _copy(image, found, run, work, listener) as copy:
            layouts.verify(copy)
            _write(copy, found.manifest if whole else "", work / "entry" / "output")
        entry = made.publish(store, work / "entry", "images", found.key, name=_WHAT, listener=listener, facts={})
        return Kept(entry.path, whole)


@contextmanager
def copied(image: Named, store: Store, environment: Mapping[str, str], listener: Listener) -> Iterator[layouts.Layout]:
    """A copy of the image while the block runs, layers and all, which nobody has checked yet. Raises as `kept`.

    Its digest is '': the store need not keep the manifest that the image was shipped with.
    """
    with store.workspace() as work:
        run = _runner(work, environment, listener, image.text)
        with _copy(image, _find(image, run), run, work, listener) as copy:
            yield attrs.evolve(copy, digest="", reference=image.name)


@contextmanager
def told_as(image: Named, place: Path) -> Iterator[None]:
    """What the block says of the image's files at `place` it says of the image: nobody else knows that place."""
    try:
        yield
    except PihError as problem:
        problem.where = problem.where.replace(str(place), image.text)
        raise


@contextmanager
def _copy(image: Named, found: _Found, run: Run, work: Path, listener: Listener) -> Iterator[layouts.Layout]:
    """Reported as a fetch, which ends well if the block does."""
    listener(FetchStarted(image.text, found.size))
    try:
        if found.source == _SAVED:  # skopeo knows neither DOCKER_HOST nor docker's contexts, its client does
            run("docker", ["image", "save", "--output", "image.tar", found.key], "copied")
        arguments = ["copy", "--quiet", "--dest-oci-accept-uncompressed-layers", found.source, "oci:layout"]
        run("skopeo", arguments, "copied")
        copy = layouts.read(work / "copied" / "layout")
        if copy.config_digest not in (found.config, f"sha256:{found.key}"):
            configuration = run("skopeo", ["inspect", "--config", "--raw", found.source], "copied")
            copy = _with_own_configuration(copy, found, configuration)
        with told_as(image, copy.path):
            yield _uncompressed(copy)
    except BaseException:
        listener(FetchFailed(image.text))
        raise
    listener(FetchDone(image.text, f"{image.engine}'s store"))


def _runner(work: Path, environment: Mapping[str, str], listener: Listener, name: str) -> Run:
    def run(client: str, arguments: Sequence[str], folder: str = "asked") -> str:
        return _run(client, arguments, work / folder, environment, listener, name)

    return run


def _find(image: Named, run: Run) -> _Found:
    return _engines(image, run) if image.asked else _skopeos(f"{image.transport}:{image.name}", run)


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
    refused = "name an image as its engine lists it (podman images, docker images), and see that the engine runs"
    advanced = (lambda done: listener(FetchAdvanced(name, done))) if folder.name == "copied" else _nothing
    try:
        return command.run(
            client, [client, *arguments], folder, environment, missing=missing, refused=refused, advanced=advanced
        )
    except FetchError as failure:
        raise FetchError(failure.what, where=name, fix=failure.fix) from failure


def _nothing(done: int) -> None:
    """Asking takes no time worth showing."""


def _engines(image: Named, run: Run) -> _Found:
    """By the engine's own rules for short names; then the image is asked for by its id, which does not move."""
    said = run(image.engine, ["image", "inspect", "--format", "{{.Id}} {{.Size}}", image.name]).split()
    identity = _ID.fullmatch(said[0]) if len(said) == 2 and said[1].isdigit() else None
    if identity is None:
        raise FetchError(f"{image.engine} gives no id of the image: {' '.join(said)[:100]!r}", where=image.text)
    if image.engine == "docker":  # its store keeps no manifest, and to ask skopeo for one is to copy the image
        return _Found(_SAVED, identity[1], int(said[1]), "", "")
    return attrs.evolve(_skopeos(f"{image.transport}:@{identity[1]}", run), size=int(said[1]))


def _skopeos(source: str, run: Run) -> _Found:
    manifest = run("skopeo", ["inspect", "--raw", source])
    config = _parsed(manifest).get("config")
    named = str(config.get("digest")) if isinstance(config, dict) else ""
    return _Found(source, hashlib.sha256(manifest.encode()).hexdigest(), 0, manifest, named)


def _fits(manifest: str) -> bool:
    """Whether the store's manifest is one of OCI's; those that docker builds are of another type."""
    return _parsed(manifest).get("mediaType") == layouts.MANIFEST


def _parsed(manifest: str) -> dict[str, Any]:
    try:
        data = json_of(manifest or "{}")
    except ValueError:
        return {}
    return data if isinstance(data, dict) else {}


def _uncompressed(copy: layouts.Layout) -> layouts.Layout:
    """Layers as they are: skopeo leaves the old type on one that it did not compress again."""
    layers = (
        attrs.evolve(layer, media_type=layouts.LAYER_TAR) if layer.digest == layer.diff_id else layer
        for layer in copy.layers
    )
    return attrs.evolve(copy, layers=tuple(layers))


def _with_own_configuration(copy: layouts.Layout, found: _Found, text: str) -> layouts.Layout:
    """The copy with the configuration that the store has: of an image with docker's manifest skopeo writes another."""
    data = text.encode()
    digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
    if found.config not in ("", digest):
        what = f"the store gives configuration {digest} for an image with {found.config}"
        raise SealError(what, where=found.source, fix="load the image again")
    _blob(copy.path, data)
    config = {**copy.manifest["config"], "digest": digest, "size": len(data)}
    _entitle(copy.path, json.dumps({**copy.manifest, "config": config}).encode())
    return layouts.read(copy.path)


def _write(copy: layouts.Layout, manifest: str, output: Path) -> None:
    """The image without its layers. manifest: in place of the copy's own, '' for that."""
    (output / "blobs" / "sha256").mkdir(parents=True)
    _blob(output, layouts.blob_path(copy.path, copy.config_digest).read_bytes())
    _entitle(output, manifest.encode() or layouts.blob_path(copy.path, copy.digest).read_bytes())
    (output / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')
    listed = {str(line.get("path")) for line in layouts.bundle_file(copy).get("files", ()) if isinstance(line, dict)}
    for name in (*_MEMBERS, *(_CODE if f"/{_CODE[0]}" in listed else ())):
        place = output / "described" / name.rpartition("/")[2]
        place.parent.mkdir(exist_ok=True)
        place.write_bytes(layouts.member(copy, name))


def _entitle(layout: Path, manifest: bytes) -> None:
    """Make this the manifest of a layout's one image."""
    entry = {"mediaType": layouts.MANIFEST, "digest": _blob(layout, manifest), "size": len(manifest)}
    (layout / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": [entry]}))


def _blob(layout: Path, data: bytes) -> str:
    digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
    (layout / "blobs" / "sha256" / digest.removeprefix("sha256:")).write_bytes(data)
    return digest
