"""Running a package manager's own client, with the user's own configuration, for one download."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from pih_runtime.errors import FetchError

_LINES = 12
_POLL = 0.2


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
    lie in the folder, a few times a second. Raises FetchError with the client's own last lines.
    """
    with (folder / "stdout").open("w+b") as out, (folder / "stderr").open("w+b") as err:
        try:
            process = subprocess.Popen(
                arguments,
                cwd=folder,
                env={**environment, "TMPDIR": str(folder)},
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
        err.seek(0)
        out.seek(0)
        if process.returncode:
            said = [line for line in err.read().decode(errors="replace").splitlines() if line.strip()]
            fix = (
                refused
                or f"name what your registries have, or see to the mirrors in your own configuration of {client}"
            )
            raise FetchError("\n    ".join([f"{client} failed:", *said[-_LINES:]]), fix=fix)
        return out.read().decode(errors="replace")


def only_file(folder: Path, suffix: str) -> Path:
    """The one file that the client left in `folder`."""
    found = sorted(folder.glob(f"*{suffix}"))
    if len(found) != 1:
        raise FetchError(f"the client said it was done, and left {len(found)} files *{suffix}")
    return found[0]


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
