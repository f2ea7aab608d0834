"""Two outputs that should be the same bytes: where they differ first.

Modes do not count: Bazel makes every output executable, and a layout's files carry none. The blobs of an image are
named by their digests, so two images are compared layer by layer, before what names the layers.
"""

from __future__ import annotations

import gzip
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, cast

import attrs

from pih.bundle import layout as layouts
from pih_runtime.errors import SealError

_CHUNK = 1 << 20


@attrs.frozen
class Difference:
    """path: in the output, '' for the output itself. offset: the first differing byte; -1 where it is no content.

    Of a compressed layer it is the byte of the archive in it.
    """

    path: str
    offset: int
    what: str


def first_difference(one: Path, other: Path) -> Difference | None:
    """The first difference of two files, folders or image layouts; None where they are alike."""
    for name, counterpart in _blobs(one, other):
        offset = _offset(_unpacked(one / name), _unpacked(other / counterpart))
        if offset is not None:
            return Difference(name, offset, _sizes(one / name, other / counterpart) + _member(one / name, offset))
    for name in sorted(_entries(one) | _entries(other)):
        found = _compare(one / name if name else one, other / name if name else other)
        if found is not None:
            what, offset = found
            return Difference(name, offset, what)
    return None


def _blobs(one: Path, other: Path) -> Iterator[tuple[str, str]]:
    """The layers and the configurations of two images, in pairs; nothing where one of them is no image."""
    try:
        images = [layouts.read(path) for path in (one, other)]
    except SealError:
        return
    digests = [[layer.digest for layer in image.layers] for image in images]
    pairs = [*zip(*digests, strict=False), (images[0].config_digest, images[1].config_digest)]
    for pair in pairs:
        mine, theirs = (f"blobs/sha256/{digest.removeprefix('sha256:')}" for digest in pair)
        if mine != theirs and (one / mine).is_file() and (other / theirs).is_file():
            yield mine, theirs


def _unpacked(path: Path) -> BinaryIO:
    with path.open("rb") as stream:
        packed = stream.read(2) == b"\x1f\x8b"
    return cast("BinaryIO", gzip.open(path)) if packed else path.open("rb")


def _member(path: Path, offset: int) -> str:
    """Where in the archive that is, in words; '' for what is no archive."""
    try:
        with tarfile.open(path) as archive:
            last = ""
            for member in archive:
                if member.offset > offset:
                    break
                last = member.name
            return f", in {last}" if last else ""
    except tarfile.TarError:
        return ""


def _entries(root: Path) -> set[str]:
    if not root.is_dir() or root.is_symlink():
        return {""}
    return {path.relative_to(root).as_posix() for path in root.rglob("*")}


def _compare(one: Path, other: Path) -> tuple[str, int] | None:
    kinds = [_kind(path) for path in (one, other)]
    if kinds[0] != kinds[1]:
        return f"{kinds[0]} against {kinds[1]}", -1
    if kinds[0] == "link":
        targets = [path.readlink() for path in (one, other)]
        return None if targets[0] == targets[1] else (f"link to {targets[0]} against {targets[1]}", -1)
    if kinds[0] == "folder":
        return None
    offset = _offset(one.open("rb"), other.open("rb"))
    if offset is None:
        return None
    return _sizes(one, other), offset


def _sizes(one: Path, other: Path) -> str:
    return f"{one.stat().st_size} bytes against {other.stat().st_size}"


def _kind(path: Path) -> str:
    if path.is_symlink():
        return "link"
    if path.is_dir():
        return "folder"
    return "file" if path.exists() else "nothing"


def _offset(one: BinaryIO, other: BinaryIO) -> int | None:
    """The first byte in which two streams differ; where one ends early, its length. Closes them."""
    at = 0
    with one as left, other as right:
        while True:
            chunks = left.read(_CHUNK), right.read(_CHUNK)
            if chunks[0] != chunks[1]:
                pairs = enumerate(zip(*chunks, strict=False))
                return at + next((index for index, (a, b) in pairs if a != b), min(map(len, chunks)))
            if not chunks[0]:
                return None
            at += len(chunks[0])
