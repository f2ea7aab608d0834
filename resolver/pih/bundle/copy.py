"""A copy of an image layout where a user wants one. It takes the place of a layout that can be made again, alone."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Callable
from pathlib import Path

from pih.build.placing import placed
from pih.bundle import layout as layouts
from pih.bundle import modelpack
from pih.bundle.layout import Layout
from pih_runtime.errors import SealError, UsageError, WorkerError

_FICLONE = 0x40049409  # linux/fs.h
_PARTS = {"oci-layout", "index.json", "blobs"}
_ENTRY = ["/usr/bin/pih-worker"]  # of every image of pih, and of no other
_FIX = "name another folder, or remove this one"


def unsealed(before: Layout) -> None:
    """Raises UsageError for a layout with a seal, which a copy without one would throw away."""
    if before.attached:
        what = "is a sealed bundle, and its signatures cannot be made again"
        raise UsageError(what, where=str(before.path), fix=_FIX)


def copied(
    image: Path,
    output: Path,
    finish: Callable[[Path], None] = lambda _: None,
    check: Callable[[Layout], None] = unsealed,
) -> Path:
    """A layout of the user's own: hard links would let an edit reach the store.

    finish: changes the copy before it is there for others. check: raises where an image's layout there must stay. All
    else that is there stays, unless pih can make it again: raises UsageError.
    """
    if output.resolve().is_relative_to(image.resolve()) and not output.exists():
        raise UsageError("is inside of the bundle itself", where=str(output), fix="name another folder")
    with placed(output, lambda place: replaceable(place, check)) as made:
        shutil.copytree(image, made, copy_function=_copy)
        finish(made)
    return output


def _copy(source: str, target: str) -> None:
    """Where the file system can share the blocks of two files, nothing is written."""
    try:
        with Path(source).open("rb") as reader, Path(target).open("wb") as writer:
            try:
                fcntl.ioctl(writer.fileno(), _FICLONE, reader.fileno())
            except OSError:
                shutil.copyfileobj(reader, writer, 1 << 20)
        shutil.copystat(source, target)
    except OSError as problem:  # the first one ends it: copytree would try all other files, and tell of each
        fix = "make room or give access, or name a folder on another disk"
        raise WorkerError(
            problem.strerror or "cannot be copied", where=problem.filename or target, fix=fix
        ) from problem


def replaceable(place: Path, check: Callable[[Layout], None] = unsealed) -> None:
    """May a copy take this place? Raises UsageError for anything that pih cannot make again. check: of a layout."""
    if not os.path.lexists(place):
        return
    folder = place.is_dir() and not place.is_symlink()
    if not folder or {item.name for item in place.iterdir()} - {"manifest.json"} != _PARTS:
        raise UsageError("is there already, and is no image layout", where=str(place), fix="name another folder")
    known = modelpack.blobs(place)
    if known is None:
        known, before = _blobs(place)
        check(before)
    held = {f"sha256:{path.name}" for path in (place / "blobs" / "sha256").iterdir()}
    if held != known or [path.name for path in (place / "blobs").iterdir()] != ["sha256"]:
        raise _foreign(place)


def _blobs(place: Path) -> tuple[set[str], Layout]:
    """Digests of all that an image of pih and its seal consist of."""
    try:
        image = layouts.read(place)
        attached = {digest for item in image.attached for digest in (item.digest, *layouts.blobs_of(image, item))}
    except SealError as problem:
        raise _foreign(place) from problem
    settings = image.config.get("config")
    if not isinstance(settings, dict) or settings.get("Entrypoint") != _ENTRY:
        raise _foreign(place)
    return {image.digest, image.config_digest, *(layer.digest for layer in image.layers)} | attached, image


def _foreign(place: Path) -> UsageError:
    return UsageError("is there already, and holds what pih cannot make again", where=str(place), fix=_FIX)
