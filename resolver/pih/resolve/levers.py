"""What target and catalog give to a deployment that does not fit, beside smaller limits."""

from __future__ import annotations

import attrs

from pih.catalog import Catalog, Manifest
from pih.lock import Target
from pih.resolve.fits import Levers
from pih.resolve.lowering import pack_of, processor, provider, smaller_formats
from pih.resolve.outcome import Solution
from pih.resolve.taken import TRANSPORT
from pih.resolve.target import misfit, wants_devices

_MOST_DEVICES = 64  # as many as a profile can name


def levers_of(solution: Solution, catalog: Catalog, target: Target) -> Levers:
    """Formats of the chosen pack; more devices and spill only where the backend computes on devices."""
    formats = smaller_formats(pack_of(solution).report, processor(pack_of(solution), target))
    backend = provider(solution, "backend.device")
    if target.device is None or not wants_devices(backend.target):
        return Levers(formats)
    joined = any(TRANSPORT in plugin.provides for plugin in solution.plugins) or transports(solution, catalog, target)
    return Levers(formats, _MOST_DEVICES if joined else 0, spills(solution))


def transports(solution: Solution, catalog: Catalog, target: Target) -> tuple[Manifest, ...]:
    """The plugin that would join ranks if the deployment had more devices; none where it has one, or there is none."""
    if target.device is None or any(TRANSPORT in plugin.provides for plugin in solution.plugins):
        return ()
    wider = attrs.evolve(target, device=attrs.evolve(target.device, count=_MOST_DEVICES))
    fitting = (one for one in catalog.plugins if TRANSPORT in one.provides and not misfit(one.target, wider))
    return tuple(sorted(fitting, key=lambda plugin: plugin.id)[:1])


def spills(solution: Solution) -> bool:
    """Whether the chosen memory plugin keeps cache pages in the host's memory too."""
    return any(host_tier(plugin) for plugin in solution.plugins)


def host_tier(plugin: Manifest) -> bool:
    """Whether a plugin reports the host as a place for cache pages."""
    return plugin.kind == "memory" and "host" in plugin.report.spill
