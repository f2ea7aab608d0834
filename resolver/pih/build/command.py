"""Running a package manager's own client, with the user's own configuration, for one download."""

from __future__ import annotations

import errno
import os
import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from pih_runtime.errors import FetchError

_LINES = 12
_POLL = 0.2
_FULL = ("no space left on device", "enospc", "disk quota exceeded")
_LITTLE = 1 << 16  # bytes: a disk with less has no room, whatever its client says


def run(
    client: str,
    arguments: Sequence[str],
    folder: Path,
    environment: Mapping[str, str],
    *,
    missing: str,
    refused: str = "",
    advanced: Callable[[int], None],
) -> str:
    """Run a package manager's client in `folder`; returns what it printed on stdout.

    missing: what to do where the client is not installed. refused: and where it fails. advanced: told the bytes that
    lie in the folder, a few times a second. Raises FetchError with the client's own last lines, or OSError (ENOSPC)
    where it met a full disk, which a workspace of the store tells in words.
    """
    # In memory, for a full disk would take no words of it; in English, for it is read here.
    with os.fdopen(os.memfd_create("stdout"), "w+b") as out, os.fdopen(os.memfd_create("stderr"), "w+b") as err:
        try:
            process = subprocess.Popen(
                arguments,
                cwd=folder,
                env={**environment, "TMPDIR": str(folder), "LC_ALL": "C.UTF-8"},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
            )
        except FileNotFoundError:
            raise FetchError(f"{client} is not installed", fix=missing) from None
        try:
            while _waits(process):
                advanced(_bytes_below(folder))
        except BaseException:
            process.kill()
            process.wait()
            raise
        printed = _text(out)
        if process.returncode:
            said = _lines(_text(err)) or _lines(printed) or [f"exit code {process.returncode}, and not a word"]
            _check_room(client, said, folder)
            fix = (
                refused
                or f"name what your registries have, or see to the mirrors in your own configuration of {client}"
            )
            raise FetchError("\n    ".join([f"{client} failed:", *said[-_LINES:]]), fix=fix)
        return printed


def only_file(folder: Path, suffix: str) -> Path:
    """The one file that the client left in `folder`."""
    found = sorted(folder.glob(f"*{suffix}"))
    if len(found) != 1:
        raise FetchError(f"the client said it was done, and left {len(found)} files *{suffix}")
    return found[0]


def _check_room(client: str, said: Sequence[str], folder: Path) -> None:
    """Raises OSError where it failed for want of room: by its own words, or by what is free now."""
    words = [line for line in said if any(word in line.lower() for word in _FULL)]
    room = os.statvfs(folder)
    if words or room.f_bavail * room.f_frsize < _LITTLE:
        raise OSError(errno.ENOSPC, "\n    ".join([f"{client} met a full disk", *words[-1:]]), str(folder))


def _text(stream: BinaryIO) -> str:
    stream.seek(0)
    return stream.read().decode(errors="replace")


def _lines(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.strip()]


def _waits(process: subprocess.Popen[bytes]) -> bool:
    try:
        process.wait(_POLL)
    except subprocess.TimeoutExpired:
        return True
    return False


def _bytes_below(folder: Path) -> int:
    """Approximate by nature: the client moves and removes its files meanwhile."""
    total = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            with suppress(FileNotFoundError):
                total += os.lstat(os.path.join(parent, name)).st_size  # noqa: PTH118 - many files, several times a second
    return total
