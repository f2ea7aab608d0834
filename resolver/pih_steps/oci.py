"""OCI image layout 1.1, written deterministically: blobs, image manifest, index.

A `manifest.json` beside the index makes the same folder a docker archive, so that `docker load` and
`podman load` take what skopeo reads. Every date is 1970: an image's identity is its content.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import shutil
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pih_runtime.errors import BuildError
from pih_steps import tar
from pih_steps.spec import of_the_disk

CREATED = "1970-01-01T00:00:00Z"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
CONFIG = "application/vnd.oci.image.config.v1+json"
INDEX = "application/vnd.oci.image.index.v1+json"
LAYER = "application/vnd.oci.image.layer.v1.tar"
LAYER_GZIP = f"{LAYER}+gzip"


@dataclass(frozen=True, slots=True)
class Blob:
    """What a descriptor says of a blob."""

    media_type: str
    digest: str
    size: int

    def descriptor(self) -> dict[str, Any]:
        """The descriptor's JSON."""
        return {"mediaType": self.media_type, "digest": self.digest, "size": self.size}


@dataclass(frozen=True, slots=True)
class Layer:
    """A layer: its blob, the digest of its tar archive (diff id), what it holds in a word."""

    blob: Blob
    diff_id: str
    title: str


def canonical(value: object) -> bytes:
    """JSON with one spelling."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


VERSION = canonical({"imageLayoutVersion": "1.0.0"})


def create(layout: Path) -> None:
    """Begin an empty layout in the folder `layout`."""
    (layout / "blobs" / "sha256").mkdir(parents=True, exist_ok=True)
    (layout / "oci-layout").write_bytes(VERSION)


def path_of(layout: Path, digest: str) -> Path:
    """Where the layout keeps the blob."""
    algorithm, _, value = digest.partition(":")
    return layout / "blobs" / algorithm / value


def add_bytes(layout: Path, data: bytes, media_type: str) -> Blob:
    """Add a small blob."""
    digest = "sha256:" + hashlib.sha256(data).hexdigest()
    path_of(layout, digest).write_bytes(data)
    return Blob(media_type, digest, len(data))


def add_gzip_layer(layout: Path, archive: Path, title: str) -> Layer:
    """Add a compressed layer that another step wrote."""
    blob_hash = hashlib.sha256()
    with archive.open("rb") as stream:
        while chunk := stream.read(tar.CHUNK):
            blob_hash.update(chunk)
        size = stream.tell()
    diff = hashlib.sha256()
    try:
        with gzip.open(archive) as stream:
            while chunk := stream.read(tar.CHUNK):
                diff.update(chunk)
    except (OSError, EOFError, zlib.error) as problem:
        if of_the_disk(problem):
            raise
        raise BuildError(f"not a compressed layer: {problem}", where=str(archive)) from problem
    blob = Blob(LAYER_GZIP, f"sha256:{blob_hash.hexdigest()}", size)
    shutil.copyfile(archive, path_of(layout, blob.digest))
    return Layer(blob, f"sha256:{diff.hexdigest()}", title)


def add_stream(layout: Path, media_type: str, write: Callable[[tar.Sink], object]) -> Blob:
    """Add a blob that `write` streams; it may be larger than memory."""
    beside = layout / "blobs" / "incoming"
    with beside.open("wb") as stream:
        sink = tar.Hashing(stream)
        write(sink)
    beside.replace(path_of(layout, sink.digest))
    return Blob(media_type, sink.digest, sink.size)


def add_image(layout: Path, layers: list[Layer], config: dict[str, Any], architecture: str, tag: str) -> Blob:
    """Add the image's config and manifest, and finish the layout with it as its one image."""
    config_blob = add_bytes(layout, image_config(layers, config, architecture), CONFIG)
    blobs = [layer.blob for layer in layers]
    image = add_bytes(layout, image_manifest(config_blob, blobs), MANIFEST)
    (layout / "index.json").write_bytes(index([image_entry(image, architecture, tag)]))
    (layout / "manifest.json").write_bytes(docker_archive(config_blob, blobs, tag))
    return image


def image_config(layers: list[Layer], config: dict[str, Any], architecture: str) -> bytes:
    """The image's configuration. config: what a container is started with."""
    return canonical(
        {
            "created": CREATED,
            "architecture": architecture,
            "os": "linux",
            "config": config,
            "rootfs": {"type": "layers", "diff_ids": [layer.diff_id for layer in layers]},
            "history": [{"created": CREATED, "created_by": "pih", "comment": layer.title} for layer in layers],
        }
    )


def image_manifest(config: Blob, layers: list[Blob]) -> bytes:
    """The image's manifest."""
    return canonical(
        {
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": config.descriptor(),
            "layers": [layer.descriptor() for layer in layers],
            "annotations": {"org.opencontainers.image.created": CREATED},
        }
    )


def image_entry(image: Blob, architecture: str, tag: str) -> dict[str, Any]:
    """The image's line in the index. tag: its name for engines."""
    return {
        **image.descriptor(),
        "platform": {"os": "linux", "architecture": architecture},
        "annotations": {"io.containerd.image.name": tag, "org.opencontainers.image.ref.name": tag},
    }


def index(entries: list[dict[str, Any]]) -> bytes:
    """index.json."""
    return canonical({"schemaVersion": 2, "mediaType": INDEX, "manifests": entries})


def docker_archive(config: Blob, layers: list[Blob], tag: str) -> bytes:
    """manifest.json, which makes the layout a docker archive too."""
    return canonical([{"Config": _inside(config), "RepoTags": [tag], "Layers": [_inside(layer) for layer in layers]}])


def _inside(blob: Blob) -> str:
    return "blobs/" + blob.digest.replace(":", "/")
