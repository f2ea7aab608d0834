"""Bits that rot on a disk: nothing but the bytes tells."""

import os
from pathlib import Path


def rotten(path: Path, at: int) -> None:
    """Flip a bit of byte `at` of a file, which keeps its size, mode and times. Other links to it stay as they are."""
    status, data = path.stat(), path.read_bytes()
    path.unlink()
    path.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
    path.chmod(status.st_mode & 0o7777)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
