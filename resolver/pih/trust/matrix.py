"""A plugin's version matrix: whether it is made for this PIH, and what would fit where it is not."""

from __future__ import annotations

from collections.abc import Iterable

import attrs
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from pih import VERSION
from pih.catalog import Manifest, Tested, abi_problem, precedence
from pih.columns import aligned
from pih_runtime.abi import ABI


@attrs.frozen
class Unfit:
    """Why a release is no candidate, and what to do. table: what would fit, '' where that is not the question."""

    why: str
    fix: str
    table: str = ""


def unfit(manifest: Manifest, others: Iterable[Manifest] = ()) -> Unfit | None:
    """Why this release is not for this PIH; None where it is.

    others: releases at hand, of any plugin; those of the same one complete the table of what would fit.
    """
    own = next((row for row in manifest.tested if row.version == manifest.version), None)
    if own is None:
        return Unfit(
            f"its version matrix has no row for {manifest.version}",
            f'its author must add [[tested]] version = "{manifest.version}" to its plugin.toml',
        )
    problem = abi_problem(manifest.abi)
    if not problem and not _fits(own):
        problem = f"it was tested with PIH {own.pih}, ABI {own.abi}; this is PIH {VERSION}, ABI {ABI}"
    if not problem:
        return None
    rows = {row.version: row for other in others if other.id == manifest.id for row in other.tested}
    rows |= {row.version: row for row in manifest.tested}
    fitting = [version for version, row in rows.items() if _fits(row)]
    best = max(fitting, key=precedence, default="")
    fix = f"take {manifest.id} {best}" if best else f"there is no {manifest.id} for this PIH yet: use the PIH it names"
    return Unfit(problem, fix, _table(manifest.id, rows))


def _fits(row: Tested) -> bool:
    return row.abi == ABI and SpecifierSet(row.pih).contains(VERSION, prereleases=True)


def _table(name: str, rows: dict[str, Tested]) -> str:
    ordered = sorted(rows.values(), key=lambda row: Version(row.version), reverse=True)
    cells = [
        (name, "PIH", "ABI", "fits"),
        *((r.version, r.pih, str(r.abi), "yes" if _fits(r) else "no") for r in ordered),
    ]
    return "".join(f"\n    {line}" for line in aligned(cells))
