"""Cache pages in the host's memory: asked for by the profile, kept by a memory plugin that reports that it can."""

from __future__ import annotations

from pathlib import Path

from pih.catalog import Catalog
from pih.profile import Profile
from pih.resolve.levers import host_tier, spills
from pih.resolve.outcome import Solution
from pih.sizes import memory_bytes
from pih_runtime.errors import ResolutionError


def bytes_of(profile: Profile, root: Path, solution: Solution, catalog: Catalog) -> int:
    """The profile's `limits.spill` in bytes; raises ResolutionError where no chosen plugin keeps it."""
    asked = profile.intent.limits.spill
    if not asked:
        return 0
    if not spills(solution):
        chosen = next((plugin.id for plugin in solution.plugins if plugin.kind == "memory"), "no memory plugin")
        able = sorted({plugin.id for plugin in catalog.plugins if host_tier(plugin)})
        other = f'selection.prefer = ["{able[0]}"], or ' if able else ""
        raise ResolutionError(
            f"Because {profile.reason(root, 'limits', 'spill')},\n"
            f"  and {chosen} reports no place in the host's memory for cache pages.\n"
            "  So nothing can spill.",
            fix=f"{other}remove limits.spill",
        )
    return memory_bytes(asked)
