"""A disk on which little can be written."""

import resource
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def small_disk(most: int = 64) -> Iterator[None]:
    """No file may have more bytes than these."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def on_small_disk(
    size: str, script: str, disk: Path, environment: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a script of the shell with a file system of `size` at `disk`, its $DISK, in namespaces of its own."""
    unshare = ["unshare", "--mount", "--map-root-user"]
    if not shutil.which("unshare") or subprocess.run([*unshare, "true"], capture_output=True, check=False).returncode:
        pytest.skip("no user and mount namespaces here (unshare)")
    whole = f"mount -t tmpfs -o size={size} none {disk}; DISK={disk}\n{script}"
    return subprocess.run([*unshare, "sh", "-c", whole], capture_output=True, text=True, check=False, env=environment)
