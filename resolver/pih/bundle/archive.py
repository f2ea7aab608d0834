"""A layout in one file: a tar of its folder, compressed or not.

What is not a part of a layout is refused, and so is what would take more of the disk than a bundle's archive can.
"""

from __future__ import annotations

import lzma
import re
import tarfile
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pih.build import extract
from pih_runtime.errors import SealError

_UNREADABLE = (tarfile.TarError, OSError, EOFError, ValueError, zlib.error, lzma.LZMAError)
_PART = re.compile(r"(\./)?(oci-layout|index\.json|manifest\.json|blobs/sha256/[0-9a-f]{64})\Z")
# A compressed layer does not shrink further, and JSON by a tenth; a little is allowed to any archive.
_MAX_RATIO, _FREE = 20, 64 << 20
_FIX = "name the folder of an image layout, an archive of it, or the root that it was unpacked to"


@contextmanager
def unpacked(path: Path) -> Iterator[Path]:
    """The layout's folder while the block runs: of an archive a temporary copy, else `path` itself."""
    if not path.is_file():
        yield path
        return
    with tempfile.TemporaryDirectory(prefix="pih-") as folder:
        try:
            _extract(path, Path(folder))
        except (*_UNREADABLE, extract.UnsafePathError) as problem:
            raise SealError(f"no archive of an image layout: {problem}", where=str(path), fix=_FIX) from problem
        yield Path(folder)


def _extract(path: Path, root: Path) -> None:
    left = path.stat().st_size * _MAX_RATIO + _FREE
    seen: set[str] = set()
    with tarfile.open(path) as tar:
        for entry in tar:
            if entry.isdir():
                continue
            if not entry.isreg() or entry.issparse() or not _PART.match(entry.name):
                raise extract.UnsafePathError(f"{entry.name!r} is no part of an image layout")
            name = entry.name.removeprefix("./")
            left -= entry.size
            if name in seen or left < 0:
                raise extract.UnsafePathError(f"{name} is there twice, or too large for this archive")
            seen.add(name)
            content = tar.extractfile(entry)
            if content is not None:
                extract.file(root, name, content, entry.size, executable=False)
