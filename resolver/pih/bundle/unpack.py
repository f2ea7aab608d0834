"""Unpacking a bundle into the store, so that its worker can run without a container engine.

Nothing is kept unless every layer had the digest that the manifest gives it.
"""

from __future__ import annotations

import tarfile
from pathlib import Path

from pih.build import extract
from pih.build.store import Store
from pih.bundle import blob, layout
from pih_runtime.errors import SealError

# A sandbox mounts things here, and cannot make the folders once the root is read-only.
_MOUNTS = ("dev", "proc", "tmp", "pih/weights")


def unpack(image: layout.Layout, store: Store) -> Path:
    """The root folder of the image in the store: roots/DIGEST."""
    key = image.digest.removeprefix("sha256:")
    place = store.place("roots", key)
    if place.is_dir():
        return place
    with store.workspace() as work:
        root = work / "root"
        root.mkdir(mode=0o755)
        for layer in image.layers:
            _apply(image, layer, root)
        for folder in _MOUNTS:
            extract.folder(root, folder)
        return store.publish(root, "roots", key)


def _apply(image: layout.Layout, layer: layout.Layer, root: Path) -> None:
    try:
        with layout.archive(image, layer) as stream, tarfile.open(fileobj=stream, mode="r|", bufsize=1 << 20) as tar:
            for member in tar:
                _write(root, tar, member)
    except (tarfile.TarError, extract.UnsafePathError, blob.DamagedError, EOFError, ValueError) as problem:
        raise SealError(
            f"layer {layer.digest} cannot be unpacked: {problem}", where=str(image.path), fix="build the bundle again"
        ) from problem


def _write(root: Path, tar: tarfile.TarFile, member: tarfile.TarInfo) -> None:
    name = member.name
    if name.rpartition("/")[2].startswith(".wh."):
        raise extract.UnsafePathError(f"{name!r} deletes a file: no layer of a bundle does")
    if member.isdir():
        # Modes of folders matter to a container (/tmp is open to all); below the store they are the owner's.
        extract.folder(root, name)
    elif member.issym():
        extract.link(root, name, member.linkname)
    elif member.isreg():
        content = tar.extractfile(member)
        if content is None:
            raise extract.UnsafePathError(f"{name!r} has no content")
        extract.file(root, name, content, member.size, executable=member.mode & 0o111 != 0)
    else:
        raise extract.UnsafePathError(f"{name!r} is neither file, folder nor link")
