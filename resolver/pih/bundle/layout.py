"""Reading an OCI image layout, as something that comes from outside.

Every name, size and digest is checked before it is used; a blob's bytes are checked whenever they are read.
"""

from __future__ import annotations

import hashlib
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import attrs

from pih.bundle import blob, entries
from pih.reading import json_of
from pih_runtime.errors import SealError

BUNDLE_FILE = "pih/bundle.json"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
LAYER_GZIP = "application/vnd.oci.image.layer.v1.tar+gzip"
LAYER_TAR = "application/vnd.oci.image.layer.v1.tar"
_CONFIG = "application/vnd.oci.image.config.v1+json"
_REFERENCE = "org.opencontainers.image.ref.name"
_MAX_JSON = 16 << 20
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}\Z")
FIX = "build the bundle again, or copy it again from where it came"


@attrs.frozen
class Layer:
    """One layer. digest, size: of the blob. diff_id: digest of the archive in it."""

    digest: str
    size: int
    media_type: str
    diff_id: str


@attrs.frozen
class Attached:
    """The manifest of something that the index attaches to an image, such as an SBOM. Not read yet."""

    digest: str
    size: int


@attrs.frozen
class Layout:
    """An image in a layout. digest: of the manifest. config: as parsed. reference: its name for engines, '' without."""

    path: Path
    digest: str
    manifest: dict[str, Any]
    config_digest: str
    config: dict[str, Any]
    layers: tuple[Layer, ...]
    reference: str
    attached: tuple[Attached, ...] = ()


def read(path: Path) -> Layout:
    """Read a layout's one image; raises SealError for anything that does not hold together. Layers are not read."""
    version = _document((path / "oci-layout"), _MAX_JSON)
    if parsed(version, path / "oci-layout").get("imageLayoutVersion") != "1.0.0":
        raise SealError("not an OCI image layout of version 1.0.0", where=str(path / "oci-layout"), fix=FIX)
    index = parsed(_document(path / "index.json", _MAX_JSON), path / "index.json")
    entries = _list(index, "manifests", path)
    images = [entry for entry in entries if _image(entry)]
    if len(images) != 1:
        raise SealError(f"the layout has {len(images)} images, not one", where=str(path), fix=FIX)
    digest, size, _ = _descriptor(images[0], path)
    manifest = parsed(small_blob(path, digest, size), path)
    config_digest, config_size, config_type = _descriptor(manifest.get("config"), path)
    if config_type != _CONFIG:
        raise SealError(f"the image's configuration is of type {config_type!r}", where=str(path), fix=FIX)
    config = parsed(small_blob(path, config_digest, config_size), path)
    layers = tuple(_layers(path, manifest, config))
    annotations = images[0].get("annotations")
    named = annotations.get(_REFERENCE, "") if isinstance(annotations, dict) else ""
    attached = tuple(Attached(*_descriptor(entry, path)[:2]) for entry in entries if not _image(entry))
    return Layout(path, digest, manifest, config_digest, config, layers, str(named), attached)


def blob_path(layout: Path, digest: str) -> Path:
    """Where a blob lies; raises SealError unless it is a plain file there."""
    path = layout / "blobs" / "sha256" / digest.removeprefix("sha256:")
    try:
        mode = path.lstat().st_mode
    except OSError as problem:
        raise SealError(f"cannot read blob {digest}: {problem.strerror}", where=str(path), fix=FIX) from problem
    if not stat.S_ISREG(mode):
        raise SealError(f"blob {digest} is not a plain file", where=str(path), fix=FIX)
    return path


def small_blob(layout: Path, digest: str, size: int) -> bytes:
    """The bytes of a JSON document among the blobs; raises SealError unless they are those of the digest."""
    path = blob_path(layout, digest)
    if size > _MAX_JSON or path.stat().st_size != size:
        raise SealError(f"blob {digest} has another size than {size} bytes", where=str(path), fix=FIX)
    data = path.read_bytes()
    if "sha256:" + hashlib.sha256(data).hexdigest() != digest:
        raise SealError(f"blob {digest} has other bytes than it should have", where=str(path), fix=FIX)
    return data


def verify(layout: Layout) -> None:
    """Read every layer and check its size and digest, and the digest of the archive in it."""
    for layer in layout.layers:
        with archive(layout, layer):
            pass


@contextmanager
def archive(layout: Layout, layer: Layer, chunk: int = blob.CHUNK) -> Iterator[blob.Archive]:
    """The tar stream in a layer; after the block, all of it has been read and both digests were right.

    chunk: bytes of the blob that are read at a time.
    """
    path = blob_path(layout.path, layer.digest)
    with path.open("rb") as stream:
        opened = blob.Archive(stream, compressed=layer.media_type == LAYER_GZIP, chunk=chunk)
        try:
            yield opened
            found = opened.finish()
        except blob.DamagedError as problem:
            raise SealError(f"layer {layer.digest}: {problem}", where=str(path), fix=FIX) from problem
    if found != blob.Sums(layer.digest, layer.size, layer.diff_id):
        raise SealError(f"layer {layer.digest} has other bytes than it should have", where=str(path), fix=FIX)


def bundle_file(layout: Layout) -> dict[str, Any]:
    """The bundle's own list of files, /pih/bundle.json."""
    return parsed(member(layout, BUNDLE_FILE), layout.path)


def blobs_of(layout: Layout, artifact: Attached) -> Iterator[str]:
    """The digests that the manifest of something attached names; raises SealError where it is none."""
    found = parsed(small_blob(layout.path, artifact.digest, artifact.size), layout.path)
    for entry in (found.get("config"), *_list(found, "layers", layout.path)):
        yield _descriptor(entry, layout.path)[0]


def member(layout: Layout, name: str) -> bytes:
    """A small file of the image, from the topmost layer that has it."""
    for layer in reversed(layout.layers):
        path = blob_path(layout.path, layer.digest)
        try:
            with path.open("rb") as stream:
                # What is not compressed is passed over; what is, is read within the bounds of a layer.
                packed = layer.media_type == LAYER_GZIP
                reader = entries.Reader(blob.Archive(stream, compressed=True) if packed else stream)
                for entry in reader:
                    if entry.path == name and entry.kind == entries.FILE:
                        if entry.size > _MAX_JSON:
                            raise SealError(f"/{name} is too large", where=str(path), fix=FIX)
                        return b"".join(reader.content())
        except (OSError, ValueError) as problem:
            what = f"layer {layer.digest} was not made by pih, or is damaged: {problem}"
            raise SealError(what, where=str(path), fix=FIX) from problem
    raise SealError(f"the image has no /{name}: it was not made by pih", where=str(layout.path), fix=FIX)


def _image(entry: object) -> bool:
    """An image, as opposed to what is attached to one (an SBOM, a signature)."""
    return isinstance(entry, dict) and entry.get("mediaType") == MANIFEST and "artifactType" not in entry


def _layers(path: Path, manifest: dict[str, Any], config: dict[str, Any]) -> Iterator[Layer]:
    descriptors = [_descriptor(entry, path) for entry in _list(manifest, "layers", path)]
    filesystem = config.get("rootfs")
    diff_ids = _list(filesystem if isinstance(filesystem, dict) else {}, "diff_ids", path)
    if len(diff_ids) != len(descriptors):
        raise SealError(f"{len(descriptors)} layers, and {len(diff_ids)} diff_ids", where=str(path), fix=FIX)
    for (digest, size, media_type), diff_id in zip(descriptors, diff_ids, strict=True):
        if media_type not in (LAYER_GZIP, LAYER_TAR):
            raise SealError(f"a layer of type {media_type!r}", where=str(path), fix=FIX)
        yield Layer(digest, size, media_type, checked_digest(diff_id, path))


def _descriptor(entry: object, path: Path) -> tuple[str, int, str]:
    if not isinstance(entry, dict):
        raise SealError("a descriptor is missing", where=str(path), fix=FIX)
    size, media_type = entry.get("size"), entry.get("mediaType")
    if not isinstance(size, int) or isinstance(size, bool) or size < 0 or not isinstance(media_type, str):
        raise SealError("a descriptor has no size or type", where=str(path), fix=FIX)
    return checked_digest(entry.get("digest"), path), size, media_type


def checked_digest(value: object, path: Path) -> str:
    """A digest that can be a blob's name; raises SealError for anything else. path: of what says so."""
    if not isinstance(value, str) or not _DIGEST.match(value):
        raise SealError(f"{value!r} is not a sha256 digest", where=str(path), fix=FIX)
    return value


def _document(path: Path, limit: int) -> bytes:
    try:
        status = path.lstat()
        if not stat.S_ISREG(status.st_mode):
            raise SealError("not a plain file", where=str(path), fix=FIX)
        if status.st_size > limit:
            raise SealError("the file is too large", where=str(path), fix=FIX)
        return path.read_bytes()
    except OSError as problem:
        raise SealError(f"not an OCI image layout: {problem.strerror}", where=str(path), fix=FIX) from problem


def parsed(data: bytes, path: Path) -> dict[str, Any]:
    """A JSON object; raises SealError for anything else. path: of what holds it."""
    try:
        value = json_of(data)
    except ValueError as problem:
        raise SealError(f"not JSON: {problem}", where=str(path), fix=FIX) from problem
    if not isinstance(value, dict):
        raise SealError("not a JSON object", where=str(path), fix=FIX)
    return value


def _list(value: dict[str, Any], key: str, path: Path) -> list[Any]:
    found = value.get(key)
    if not isinstance(found, list):
        raise SealError(f"no list {key!r}", where=str(path), fix=FIX)
    return found
