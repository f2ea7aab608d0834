"""Amounts of bytes as people write and read them: decimal units, as registries and disks count."""

from __future__ import annotations

import math
import re

_AMOUNT = re.compile(r"(\d{1,15}(?:\.\d{1,6})?) ?(B|kB|MB|GB|KiB|MiB|GiB)?", re.ASCII)
_SHARE = re.compile(r"(\d{1,6}(?:\.\d{1,6})?) ?%", re.ASCII)
_UNITS = {"B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
FORMS = "1500000, 1.5MB, 300 kB, 2 MiB"


def parsed(text: str) -> int | None:
    """Bytes; a number alone is bytes. None where it is not an amount."""
    match = _AMOUNT.fullmatch(text)
    return round(float(match[1]) * _UNITS[match[2] or "B"]) if match else None


def share(text: str) -> float | None:
    """`2%` as 0.02; None where it is no percentage."""
    match = _SHARE.fullmatch(text)
    return float(match[1]) / 100 if match else None


def shown(count: int) -> str:
    """Bytes of files in three figures: 312 B, 34.1 kB, 98.2 MB."""
    return _in_units(count, (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)))


def binary(count: int) -> str:
    """Bytes of memory in three figures: 512 KiB, 92.1 MiB."""
    return _in_units(count, (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)))


def _in_units(count: int, units: tuple[tuple[str, int], ...]) -> str:
    size = abs(count)
    sign = "-" if count < 0 else ""
    for unit, factor in units:
        if size >= factor * 0.9995:
            return f"{sign}{_figures(size / factor)} {unit}"
    return f"{sign}{size} B"


def signed(count: int) -> str:
    """A change: +34.1 kB, -98.2 MB."""
    return f"+{shown(count)}" if count > 0 else shown(count)


def change(old: int, new: int) -> str:
    """A change with its share of what there was: `+34.1 kB, +0.03 %`."""
    if old == new:
        return "unchanged"
    part = (new - old) / old * 100 if old else 0.0
    share = f", {part:+.1f} %" if abs(part) >= 1 else f", {part:+.2g} %" if abs(part) >= 0.001 else ""
    return f"{signed(new - old)}{share}"


def above(size: int, headroom: float) -> str:
    """The least amount of three figures that is `headroom` above a size, as a budget has it."""
    wanted = math.ceil(size * (1 + headroom))
    for unit, factor in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if wanted >= factor:
            digits = max(0, 3 - len(str(wanted // factor)))
            scaled = math.ceil(wanted * 10**digits / factor) / 10**digits
            return f"{scaled:.{digits}f} {unit}"
    return f"{wanted} B"


def _figures(value: float) -> str:
    return f"{value:.0f}" if value >= 99.95 else f"{value:.1f}" if value >= 9.995 else f"{value:.2f}"
