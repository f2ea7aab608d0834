"""A bundle in any form that an operator has it in: image layout, archive of one, or unpacked root; with its lock."""

from __future__ import annotations

import hashlib
import json
import lzma
import tarfile
import tempfile
import zlib
from pathlib import Path

import attrs

from pih import lock as locks
from pih.build import extract
from pih.bundle import layout as layouts
from pih.inspect.bundle import Contents, Layer, listed, of_layout
from pih.lock import Lock
from pih_runtime.errors import SealError

_LOCK_FILE = "pih/lock.json"
_UNREADABLE = (tarfile.TarError, OSError, EOFError, ValueError, zlib.error, lzma.LZMAError)
_FIX = "name the folder of an image layout, an archive of it, or the root that it was unpacked to"


@attrs.frozen
class Opened:
    """What is in a bundle, and the decisions that it carries out."""

    contents: Contents
    lock: Lock


def opened(path: Path) -> Opened:
    """Read list of files and lock; raises SealError where they do not go together. The files' bytes are not read."""
    if path.is_file():
        return _archive(path)
    if (path / layouts.BUNDLE_FILE).is_file():
        return _root(path)
    image = layouts.read(path)
    return _paired(of_layout(image), layouts.member(image, _LOCK_FILE), path)


def _paired(contents: Contents, lock: bytes, path: Path) -> Opened:
    if contents.lock != "sha256:" + hashlib.sha256(lock).hexdigest():
        raise SealError(f"/{_LOCK_FILE} is not the lock that the bundle was built from", where=str(path), fix=_FIX)
    return Opened(contents, locks.from_json(lock, f"{path}: /{_LOCK_FILE}"))


def _root(root: Path) -> Opened:
    """An unpacked bundle: its layers are told apart by the list of files alone, and have no digests."""
    where = root / layouts.BUNDLE_FILE
    try:
        data, lock = json.loads(where.read_bytes()), (root / _LOCK_FILE).read_bytes()
    except (OSError, ValueError, RecursionError) as problem:
        raise SealError(f"cannot be read: {problem}", where=str(where), fix=_FIX) from problem
    name, digest, files = listed(data, str(where))
    layers = tuple(
        Layer(title, "", sum(file.size for file in files if file.layer == title), 0)
        for title in dict.fromkeys(file.layer for file in files)
    )
    return _paired(Contents(name, "", digest, "", layers, files), lock, root)


def _archive(path: Path) -> Opened:
    """A tar of a layout, compressed or not, read by way of a temporary copy of its files."""
    with tempfile.TemporaryDirectory(prefix="pih-") as folder:
        root = Path(folder)
        try:
            with tarfile.open(path) as tar:
                for entry in tar:
                    content = tar.extractfile(entry) if entry.isfile() else None
                    if content is not None:
                        extract.file(root, entry.name, content, entry.size, executable=False)
        except (*_UNREADABLE, extract.UnsafePathError) as problem:
            raise SealError(f"no archive of an image layout: {problem}", where=str(path), fix=_FIX) from problem
        return opened(root)
