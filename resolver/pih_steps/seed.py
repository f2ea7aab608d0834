"""The seed of outer builders: one static executable of a .deb, in an archive that they can open themselves.

Bazel and Nix unpack a tar with nothing from the host, but no .deb; everything else is unpacked by what comes out of it.
"""

from __future__ import annotations

import io
from pathlib import Path

from pih_runtime.errors import BuildError
from pih_steps import deb, tar

NAME = "busybox"


def archive(package: Path, member: str) -> bytes:
    """A tar of one file, `busybox`: the member of the package."""
    found = [item for item in deb.read(package).members if item.path == member and not item.target]
    if not found:
        raise BuildError(f"the package has no file {member}", where=str(package), fix="write the lock again: pih lock")
    sink = io.BytesIO()
    tar.write(sink, [tar.Entry(NAME, found[0].data, mode=0o755)])
    return sink.getvalue()
