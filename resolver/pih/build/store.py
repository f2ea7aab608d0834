"""The content-addressed store: artifacts by sha256, and what can be made again from them.

    sha256/DIGEST   artifacts, each checked against its digest on entry, read-only
    steps/KEY/      outputs of build steps  (this and the next three as in `made`)
    python/KEY/     unpacked interpreters
    roots/DIGEST/   unpacked bundles
    images/DIGEST/  what identifies an image in an engine's store, once its layers were read and right
    tmp/            workspaces of running processes

Everything enters by a rename from a workspace, so a reader sees a whole entry or none, and
several processes may work at once. A workspace holds a file lock for as long as its process
lives: what a killed one left behind is recognised by the free lock and removed.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import re
import secrets
import shlex
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Literal

import attrs

from pih.build import tree
from pih.home import home
from pih_runtime.errors import FetchError, LockError, UsageError, WorkerError

Place = Literal["steps", "python", "roots", "images"]
FOLDERS = ("sha256", "steps", "python", "roots", "images", "tmp")
_CHUNK = 1 << 20
_DIGEST = re.compile(r"[0-9a-f]{64}\Z")
_ROOM = "make room on its disk, or set PIH_STORE to a folder on another one"
_RIGHTS = "set PIH_STORE to a folder you can write"
# Troubles of the disk, which are no defect of the program: what their user can do.
_CURES = {
    errno.ENOSPC: _ROOM,
    errno.EDQUOT: _ROOM,
    errno.EFBIG: _ROOM,
    errno.EROFS: _RIGHTS,
    errno.EACCES: _RIGHTS,
    errno.EPERM: _RIGHTS,
    errno.EIO: "the disk fails: the kernel's log says more",
    errno.ENAMETOOLONG: "set PIH_STORE to a folder with a shorter path",
    errno.EMFILE: "allow more open files: ulimit -n",
    errno.ENFILE: "allow more open files on this host",
}


@attrs.frozen
class Store:
    """A store at `root`; made by `open_store`. Digests are 64 hex digits."""

    root: Path

    def path(self, digest: str) -> Path:
        """Where the artifact lies, if it is there."""
        if not _DIGEST.match(digest):
            raise FetchError(f"{digest!r} is not a sha256", fix="64 lower-case hex digits")
        return self.root / "sha256" / digest

    def has(self, digest: str, size: int | None = None) -> bool:
        """Is the artifact there? With `size`, a file of another length (a damaged disk) does not count."""
        try:
            found = self.path(digest).stat().st_size
        except FileNotFoundError:
            return False
        return size is None or found == size

    def add_file(self, source: Path) -> str:
        """Copy a file of the user's into the store; returns its sha256."""
        with self.workspace() as work:
            copy = work / "file"
            with copy.open("wb") as writer:
                digest = _copy(source, writer)
            self._enter(copy, digest)
        return digest

    def adopt(self, temporary: Path, digest: str, size: int) -> Path:
        """Move a file of a workspace into the store if it is what `digest` and `size` say.

        A link (apt makes one for a repository on this host) is followed, and what it points to left alone.
        """
        if temporary.is_symlink():
            target = temporary.resolve()
            temporary.unlink()
            shutil.copyfile(target, temporary)
        found_digest, found_size = measure(temporary)
        if found_size != size:
            raise FetchError(f"got {found_size} bytes where the lock says {size}", where=temporary.name)
        if found_digest != digest:
            raise FetchError(f"got sha256 {found_digest} where the lock says {digest}", where=temporary.name)
        self._enter(temporary, digest)
        return self.path(digest)

    def check(self, digest: str, size: int) -> None:
        """Read the artifact again: raises FetchError, and drops the entry, where it is no longer what it was.

        Raises LockError where it is whole, and of another size than the lock says.
        """
        path = self.path(digest)
        try:
            found, length = measure(path)
        except FileNotFoundError:
            raise FetchError("the file is no longer in the store", where=str(path), fix="run this again") from None
        if found == digest:
            if length == size:
                return
            what = f"the lock says {size} bytes, and the file of this digest has {length}"
            raise LockError(what, where=str(path), fix="write the lock again: pih lock")
        with self._explained():
            path.unlink(missing_ok=True)
        raise FetchError(
            "the file was damaged after it entered the store; it is removed",
            where=str(path),
            fix="run this again where it can be fetched, or bring the file first: pih fetch",
        )

    def place(self, kind: Place, key: str) -> Path:
        """Where an entry that was made from artifacts lies, if it is there."""
        return self.root / kind / key

    def publish(self, temporary: Path, kind: Place, key: str) -> Path:
        """Move a folder of a workspace to its place. Another process that was faster wins: same key, same bytes."""
        target = self.place(kind, key)
        _sync(temporary)
        try:
            temporary.rename(target)
        except OSError as problem:
            if problem.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
                raise
        tree.sync_one(target.parent)
        return target

    def discard(self, kind: Place, key: str) -> None:
        """Take an entry away, at once for all who look."""
        with self.workspace() as work, suppress(FileNotFoundError):
            self.place(kind, key).rename(work / "discarded")

    @contextmanager
    def workspace(self) -> Iterator[Path]:
        """A folder on the store's file system, removed at the end, or by the next process if this one is killed.

        Raises WorkerError where the block meets a full disk, or one that cannot be written.
        """
        self._remove_leftovers()
        with self._explained():
            folder, lock = _locked_folder(self.root / "tmp")
            with lock:
                try:
                    yield folder
                finally:
                    _remove_workspace(folder)

    def _remove_leftovers(self) -> None:
        for path in (self.root / "tmp").glob("*.lock"):
            # Removed by another process meanwhile, or not to be opened: no hindrance to this one's work.
            with suppress(OSError), path.open("rb") as lock:
                if _try_lock(lock):
                    _remove_workspace(path.with_suffix(""))

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except OSError as problem:
            cure = _CURES.get(problem.errno or 0)
            if cure is None:
                raise
            name = Path(os.fsdecode(problem.filename)) if isinstance(problem.filename, (str, bytes)) else self.root
            where = self.root if name.is_relative_to(self.root) else name
            raise WorkerError(f"cannot work in the store: {problem.strerror}", where=str(where), fix=cure) from problem

    def _enter(self, temporary: Path, digest: str) -> None:
        temporary.chmod(0o444)
        with temporary.open("rb") as stream:
            os.fsync(stream.fileno())
        target = self.path(digest)
        temporary.replace(target)
        tree.sync_one(target.parent)


def default_root(environment: Mapping[str, str]) -> Path:
    """$PIH_STORE, else the user's cache folder.

    Raises UsageError for one that is not absolute: Bazel looks from another folder, and would see another store.
    """
    for name, below in (("PIH_STORE", "."), ("XDG_CACHE_HOME", "pih"), ("HOME", ".cache/pih")):
        if chosen := environment.get(name):
            if not Path(chosen).is_absolute():
                fix = f"export {name}={shlex.quote(str(Path(chosen).absolute()))}"
                raise UsageError(f"{name} is not an absolute path: {chosen}", fix=fix)
            return Path(chosen, below)
    return home(environment, "PIH_STORE to a folder for what PIH keeps") / ".cache" / "pih"


def open_store(root: Path) -> Store:
    """The store at `root`, made if need be; raises WorkerError where it cannot be written."""
    try:
        for name in FOLDERS:
            (root / name).mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise WorkerError(
            f"cannot make the store: {problem.strerror}", where=str(root), fix="set PIH_STORE to a folder you can write"
        ) from problem
    return Store(root)


def measure(path: Path) -> tuple[str, int]:
    """sha256 and size of a file."""
    with path.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
        return digest, stream.tell()


def _copy(source: Path, writer: BinaryIO) -> str:
    hasher = hashlib.sha256()
    for chunk in _chunks(source):
        hasher.update(chunk)
        writer.write(chunk)
    return hasher.hexdigest()


def _chunks(source: Path) -> Iterator[bytes]:
    if source.exists() and not source.is_file():  # a pipe would wait, a device would never end
        raise FetchError("cannot read the file: not a plain file", where=str(source))
    try:
        with source.open("rb") as reader:
            while chunk := reader.read(_CHUNK):
                yield chunk
    except OSError as problem:
        raise FetchError(f"cannot read the file: {problem.strerror}", where=str(source)) from problem


def _remove_workspace(folder: Path) -> None:
    """The folder and then its lock; an orphaned step may still write there: then both wait for the next time."""
    with suppress(OSError):
        tree.remove(folder)
        folder.with_suffix(".lock").unlink(missing_ok=True)


def _locked_folder(parent: Path) -> tuple[Path, BinaryIO]:
    while True:
        folder = parent / f"{os.getpid()}-{secrets.token_hex(6)}"
        path = folder.with_suffix(".lock")
        lock = path.open("xb")
        # Between the two lines another process may have taken the new file for a leftover.
        if _try_lock(lock) and path.exists() and path.stat().st_ino == os.fstat(lock.fileno()).st_ino:
            try:
                folder.mkdir(mode=0o700)
            except OSError:
                path.unlink()
                raise
            return folder, lock
        lock.close()


def _try_lock(file: BinaryIO) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _sync(folder: Path) -> None:
    """Bring a tree of many files to the disk with one call for its file system."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        import ctypes  # not for commands that only read

        if ctypes.CDLL(None, use_errno=True).syncfs(descriptor):
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), str(folder))
    finally:
        os.close(descriptor)
