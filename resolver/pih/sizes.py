"""Amounts of memory as profiles and manifests write them: "512 MiB", "1.5 GiB". Imports nothing of PIH."""

from __future__ import annotations

import re

MEMORY = r"[1-9][0-9]{0,5}(\.[0-9]{1,3})? ?(KiB|MiB|GiB|TiB)"
_UNITS = {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}


def memory_bytes(text: str) -> int:
    """Bytes of an amount that matches MEMORY."""
    match = re.fullmatch(r"([0-9.]+) ?([KMGT]iB)", text)
    assert match is not None, text
    return int(float(match[1]) * _UNITS[match[2]])
