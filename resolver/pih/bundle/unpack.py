"""Unpacking a bundle into the store, so that its worker can run without a container engine.

Nothing is kept unless every layer had the digest that the manifest gives it.
"""

from __future__ import annotations

import tarfile
from pathlib import Path

from pih.build import extract, made
from pih.build.progress import Listener, silent
from pih.build.store import Store
from pih.bundle import layout
from pih.tarball import TarFile
from pih_runtime.errors import SealError

_NAME = "the unpacked image"
# A sandbox mounts things here, and cannot make the folders once the root is read-only.
_MOUNTS = ("dev", "proc", "tmp", "pih/weights")


def unpack(image: layout.Layout, store: Store, listener: Listener = silent) -> Path:
    """The root folder of the image in the store: roots/DIGEST.

    Raises SealError for an image that is damaged or was made to do harm.
    """
    key = image.digest.removeprefix("sha256:")
    if found := made.find(store, "roots", key, name=_NAME, listener=listener):
        return found.path
    with store.workspace() as work:
        root = work / "entry" / "output"
        root.mkdir(parents=True, mode=0o755)
        for layer in image.layers:
            _apply(image, layer, root)
        for folder in _MOUNTS:
            try:
                extract.folder(root, folder)
            except extract.UnsafePathError as problem:
                raise SealError(f"the image has no folder /{folder}: {problem}", where=str(image.path)) from problem
        return made.publish(store, root.parent, "roots", key, name=_NAME, listener=listener, facts={}).path


def read_again(image: layout.Layout, store: Store, listener: Listener) -> None:
    """Read an unpacked image whose worker found other bytes than it should have; one that is damaged is dropped.

    They need not be the image's: weights may be delivered apart.
    """
    made.intact(store, "roots", image.digest.removeprefix("sha256:"), name=_NAME, listener=listener)


def _apply(image: layout.Layout, layer: layout.Layer, root: Path) -> None:
    try:
        with layout.archive(image, layer) as stream, TarFile.open(fileobj=stream, mode="r|", bufsize=1 << 20) as tar:
            for member in tar:
                _write(root, tar, member)
    except (tarfile.TarError, EOFError, ValueError, OverflowError, RecursionError) as problem:
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
