"""Reading a plugin that somebody vouches for.

Where it cannot be read, the first question is whether it is still what was vouched for: of a damaged download, what an
author would have to correct is of no use to anyone.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path

from pih.reading import read_at_most
from pih.trust import places, sign
from pih.trust.content import MOST, Content
from pih.trust.sign import Signature
from pih_runtime.errors import ResolutionError

AGAIN = "get it again from its publisher"


def content(path: Path, changed: Callable[[str], str]) -> Content:
    """The plugin in a folder or an archive. changed: why an archive of this sha256 is not the one meant, or ''.

    Raises ResolutionError as `places.of_path` does; a folder that cannot be read has no digest to ask about.
    """
    try:
        return places.of_path(path).content
    except ResolutionError as problem:
        if os.path.isdir(path):  # noqa: PTH112 - raises nothing
            fix = f"{AGAIN}; if that is you: {problem.fix}"
            raise ResolutionError(problem.what, where=problem.where, fix=fix) from problem
        digest = _sha256(path)
        if digest and (why := changed(digest)):
            raise ResolutionError(f"{why} ({problem.what})", where=str(path), fix=AGAIN) from problem
        raise


def signed(path: Path, signature: Signature | None) -> Content:
    """The plugin in a folder or an archive, whose signature is beside it or none."""
    if signature is None:
        return places.of_path(path).content
    return content(
        path, lambda digest: "" if sign.made(signature.key, "plugin", digest, signature) else otherwise(signature)
    )


def otherwise(signature: Signature) -> str:
    """What is wrong with what a signature does not cover."""
    return f"it is not what {signature.fingerprint} signed: it was changed afterwards"


def _sha256(path: Path) -> str:
    """Of an archive; '' where it cannot be read, or is no archive for its length."""
    try:
        return hashlib.sha256(read_at_most(path, MOST)).hexdigest()
    except (OSError, ValueError):
        return ""
