"""What target and catalog give to a deployment that does not fit, beside smaller limits."""

from __future__ import annotations

from pih.catalog import Manifest
from pih.lock import Target
from pih.resolve.fits import Levers
from pih.resolve.lowering import pack_of, processor, provider, smaller_formats
from pih.resolve.outcome import Solution
from pih.resolve.target import wants_devices

_MOST_DEVICES = 64  # as many as a profile can name


def levers_of(solution: Solution, target: Target) -> Levers:
    """Formats of the chosen pack; more devices and spill only where the backend computes on devices."""
    formats = smaller_formats(pack_of(solution).report, processor(pack_of(solution), target))
    backend = provider(solution, "backend.device")
    if target.device is None or not wants_devices(backend.target):
        return Levers(formats)
    return Levers(formats, _MOST_DEVICES, spills(solution))


def spills(solution: Solution) -> bool:
    """Whether the chosen memory plugin keeps cache pages in the host's memory too."""
    return any(host_tier(plugin) for plugin in solution.plugins)


def host_tier(plugin: Manifest) -> bool:
    """Whether a plugin reports the host as a place for cache pages."""
    return plugin.kind == "memory" and "host" in plugin.report.spill
