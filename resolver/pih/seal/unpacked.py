"""An unpacked or installed image, held against its list of files and its lock.

Its layers are written again from its files, and give the configuration's digest: the name that the image has in every
store, whatever its layers' compression, and that a sealed layout of it has too.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from pih.build import tree
from pih.bundle import run
from pih.bundle.layout import LAYER_TAR, Layer, Layout
from pih.inspect.bundle import File
from pih.inspect.opened import bundle_file, opened_root
from pih.lock import Lock
from pih.seal import agreement, intact
from pih.seal.agreement import FIX, LIST
from pih.seal.intact import Image, Read
from pih_runtime.errors import BuildError, SealError
from pih_steps import base, devices, reach, tar

# The lowest first; the last one is there where the weights are embedded.
_LAYERS = ("base", "wheels", "app", "deployment", "weights")
_APART = {run.WEIGHTS_FILE, run.DIGESTS_FILE}
_FILE, _FOLDER = {0o644, 0o755}, {0o755}
_CAPABILITY = "security.capability"


class _Nowhere:
    """What is written to it is digested alone."""

    def write(self, data: bytes, /) -> None:
        """Forget the bytes."""


def read(root: Path) -> Image:
    """Read an unpacked image whole; it has no manifest. Raises SealError that names the file that is wrong.

    Weights that were delivered apart are no part of an image: its worker holds them against their own digests.
    """
    held = opened_root(root)
    contents, lock, where = held.contents, held.lock, str(root)
    agreement.check(contents, lock, where)
    sources = agreement.sources(bundle_file(root), lock, where)
    listed = {LIST: File(LIST, -1, "", "", "pih", "", "deployment")} | {file.path: file for file in contents.files}
    files = tuple(sorted(_files(root, listed, lock), key=lambda file: file.path))
    titles = [title for title in _LAYERS if title != "weights" or lock.weights.delivery == "embed"]
    if unknown := {file.layer for file in listed.values()} - {*titles}:
        raise SealError(f"a bundle has no layer {min(unknown)}", where=f"{root}: {LIST}", fix=FIX)
    layers = [
        (title, _archive(root, title, [file for file in listed.values() if file.layer == title])) for title in titles
    ]
    config = hashlib.sha256(agreement.configuration(contents.name, lock, layers)).hexdigest()
    archives = tuple(Layer(digest, 0, LAYER_TAR, digest) for _, digest in layers)
    return Image(Layout(root, "", {}, f"sha256:{config}", {}, archives, ""), contents, lock, files, sources)


def _files(root: Path, listed: dict[str, File], lock: Lock) -> Iterator[Read]:
    """Every file below the root as it is listed; nothing is read through a link."""
    missing, folders, used = dict(listed), dict(base.FOLDERS), {"/"}
    empty: dict[str, str] = {}
    _check_rights(os.fspath(root), _FOLDER)
    for item in tree.below(root):
        path = f"/{Path(item.path).relative_to(root).as_posix()}"
        if item.is_dir(follow_symlinks=False):
            _check_rights(item.path, _FOLDER | {folders.get(path.lstrip("/"), 0o755)})
            empty[path] = item.path
            continue
        want = missing.pop(path, None)
        if want is None and not _is_the_hosts(path, item.stat(follow_symlinks=False).st_size, lock):
            raise SealError(f"is not listed in {LIST}", where=item.path, fix=FIX)
        used.update(map(str, PurePosixPath(path).parents))
        if want is not None:
            yield _read(Path(item.path), want)
    if missing:
        raise SealError(f"{min(missing)} is listed in {LIST}, and missing", where=str(root), fix=FIX)
    for path in sorted(empty.keys() - used):
        if not _is_mounted_on(path, lock):
            raise SealError("is a folder that holds nothing of the bundle", where=empty[path], fix=FIX)


def _check_rights(path: str, modes: set[int]) -> None:
    """Of a file or folder: raises SealError for a mode or a capability that no image gives."""
    try:
        mode = stat.S_IMODE(os.lstat(path).st_mode)
        names = os.listxattr(path, follow_symlinks=False)
    except OSError as problem:
        if problem.errno != errno.ENOTSUP:
            raise SealError(f"cannot be read: {problem.strerror}", where=path, fix=FIX) from problem
        names = []  # a file system without such attributes
    if mode not in modes:
        right = " or ".join(f"{mode:o}" for mode in sorted(modes))
        raise SealError(f"has mode {mode:o}, not {right}", where=path, fix=FIX)
    if _CAPABILITY in names:
        raise SealError("has capabilities of its own, which no file of a bundle has", where=path, fix=FIX)


def _is_mounted_on(folder: str, lock: Lock) -> bool:
    """A folder of every image, or one that is mounted on, or leads to such a one."""
    places = [*(f"/{path}" for path, _ in base.FOLDERS), *_granted(lock)]
    depth = folder.count("/")
    return any(_matches("/".join(place.split("/")[: depth + 1]), folder) for place in places)


def _granted(lock: Lock) -> list[str]:
    """Patterns of what plugins may read of the host, and places of its drivers."""
    granted = [pattern for plugin in lock.plugins for pattern in plugin.permissions.paths]
    granted += devices.places(name for plugin in lock.plugins for name in plugin.permissions.devices)
    return [pattern for pattern in granted if not reach.given(pattern)]


def _is_the_hosts(path: str, size: int, lock: Lock) -> bool:
    """Weights delivered apart, or an empty place to mount on what a plugin may read of the host."""
    if path in _APART:
        return lock.weights.delivery == "separate"
    return size == 0 and any(_matches(pattern, path) for pattern in _granted(lock))


def _matches(pattern: str, path: str) -> bool:
    return re.fullmatch(re.escape(pattern).replace(r"\*", "[^/]*"), path) is not None


def _read(path: Path, want: File) -> Read:
    try:
        status = path.lstat()
        if stat.S_ISLNK(status.st_mode) and want.target == str(path.readlink()):
            return intact.linked(want)
        if not stat.S_ISREG(status.st_mode) or want.target:
            raise SealError("is of another kind than it should be", where=str(path), fix=FIX)
        _check_rights(str(path), _FILE)
        with path.open("rb") as stream:
            found = intact.digested(want, iter(lambda: stream.read(tar.CHUNK), b""))
    except OSError as problem:
        raise SealError(f"cannot be read: {problem.strerror}", where=str(path), fix=FIX) from problem
    if want.path != LIST and (f"sha256:{found.sha256}", found.size) != (want.digest, want.size):
        raise SealError(f"has other bytes than {LIST} says", where=str(path), fix=FIX)
    return found


def _archive(root: Path, title: str, files: list[File]) -> str:
    """The digest of a layer's archive, as `pih_steps` writes it."""
    archive = tar.Hashing(_Nowhere())
    entries = [_entry(root / file.path.lstrip("/"), file) for file in files]
    try:
        tar.write(archive, entries, base.FOLDERS if title == "base" else ())
    except (OSError, BuildError) as problem:
        raise SealError(f"layer {title} cannot be written again: {problem}", where=str(root), fix=FIX) from problem
    return archive.digest


def _entry(place: Path, file: File) -> tar.Entry:
    executable = not file.target and place.lstat().st_mode & stat.S_IXUSR
    return tar.Entry(file.path.lstrip("/"), place, file.target, 0o755 if executable else 0o644)
