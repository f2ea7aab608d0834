"""The digest of a part of the source tree, as bundle.json and provenance have it: anybody can make it again.

    cd TREE && find -L . -type f -printf '%P\\n' | LC_ALL=C sort | xargs sha256sum | sha256sum

Names and bytes alone: modes, times and links differ between builders. in-toto calls it dirHash, Go's modules h1.
"""

from __future__ import annotations

import hashlib
from pathlib import Path


def digest(path: Path) -> str:
    """'sha256:…' of a file; 'dirHash:…', in hex too, of a folder: of the list of its files with their digests."""
    if path.is_file():
        return f"sha256:{_sum(path)}"
    names = sorted((file.relative_to(path).as_posix() for file in path.rglob("*") if file.is_file()), key=str.encode)
    lines = "".join(f"{_sum(path / name)}  {name}\n" for name in names)
    return f"dirHash:{hashlib.sha256(lines.encode()).hexdigest()}"


def _sum(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
