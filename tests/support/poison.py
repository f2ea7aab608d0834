"""An environment that would break, or change, every build that looks at it."""

import os

from tests.support import preload

ENDED = 66  # exit code of whatever was poisoned
_PROGRAMS = ("cc", "c++", "gcc", "ld", "zig", "strip", "gzip", "tar", "xz", "cpio")


def environment(folder):
    """Programs that fail, and variables that name them; a library that ends every build step it is loaded into."""
    folder.mkdir()
    for name in _PROGRAMS:
        (folder / name).write_text(f"#!/bin/sh\necho poisoned >&2\nexit {ENDED}\n")
        (folder / name).chmod(0o755)
    (folder / "sitecustomize.py").write_text("raise SystemExit('poisoned')\n")
    return {
        "PATH": f"{folder}:{os.environ['PATH']}",
        "CC": str(folder / "cc"),
        "CFLAGS": "-O0 -g",
        "PYTHONPATH": str(folder),
        "PYTHONHASHSEED": "7",
        "LD_LIBRARY_PATH": str(folder),
        "LD_PRELOAD": str(preload.library(preload.ENDS_STEPS, folder)),
        "SOURCE_DATE_EPOCH": "1234567890",
        "ZIG_GLOBAL_CACHE_DIR": str(folder / "cache"),
    }
