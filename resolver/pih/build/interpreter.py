"""The pinned Python that runs every step: Debian packages unpacked into the store, started by their own ld.so.

So the host's Python, C library and distribution do not matter.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from pih.build import extract, made
from pih.build.progress import Listener, silent
from pih.build.store import Store
from pih.lock import Artifact
from pih_runtime.errors import BuildError

# Part of the key: raised when unpacking changes.
_UNPACKER = 1
_NAME = "the interpreter"


def key(debs: Sequence[Artifact]) -> str:
    """The interpreter's identity: the digests of its packages."""
    return hashlib.sha256(json.dumps([_UNPACKER, sorted(deb.sha256 for deb in debs)]).encode()).hexdigest()


def unpack(debs: Sequence[Artifact], store: Store, listener: Listener = silent) -> Path:
    """The root folder of the interpreter in the store, read whole before it is used; its packages are in the store."""
    identity = key(debs)
    found = made.find(store, "python", identity, name=_NAME, listener=listener)
    if found and made.intact(store, "python", identity, name=_NAME, listener=listener):
        return found.path
    from pih_steps import deb as debian

    with store.workspace() as work:
        root = work / "entry" / "output"
        root.mkdir(parents=True)
        for artifact in debs:
            store.check(artifact.sha256, artifact.size)
            path = store.path(artifact.sha256)
            try:
                for member in debian.read(path).members:
                    if member.target:
                        extract.link(root, member.path, member.target)
                    else:
                        content = io.BytesIO(member.data)
                        executable = member.mode & 0o111 != 0
                        extract.file(root, member.path, content, len(member.data), executable=executable)
            except extract.UnsafePathError as problem:
                raise BuildError(f"{artifact.name} cannot be unpacked: {problem}", where=str(path)) from problem
        entry = root.parent
        return made.publish(store, entry, "python", identity, name=_NAME, listener=listener, facts={}).path


def command(root: Path, folders: Sequence[str] = ()) -> list[str]:
    """How to start the interpreter: isolated from the user's Python settings, writing no bytecode.

    folders: of the host, for libraries that the root has not.
    """
    loader = _one(root, "lib64/ld-linux-*.so.2", "lib/ld-linux-*.so.1")
    python = _one(root, "usr/bin/python3.[0-9]*")
    libraries = [str(folder) for pattern in ("usr/lib/*-linux-gnu", "lib/*-linux-gnu") for folder in root.glob(pattern)]
    return [str(loader), "--library-path", ":".join([*libraries, *folders]), str(python), "-I", "-B", "-X", "utf8"]


def environment(scratch: Path) -> Mapping[str, str]:
    """All that a step sees of an environment: the same on every host but for the scratch folder."""
    return {"HOME": str(scratch), "TMPDIR": str(scratch), "LC_ALL": "C.UTF-8", "TZ": "UTC", "SOURCE_DATE_EPOCH": "0"}


def _one(root: Path, *patterns: str) -> Path:
    found = [path for pattern in patterns for path in sorted(root.glob(pattern))]
    if not found:
        raise BuildError(
            f"the interpreter's packages have no {patterns[0]}", fix="write the lock again: pih lock", where=str(root)
        )
    return found[0]
