"""What a profile asks for and no chosen plugin makes use of: refused, since it would lie in the image, or mislead."""

from __future__ import annotations

from pih.catalog import Catalog, Manifest
from pih.profile import Profile
from pih.resolve.outcome import Solution
from pih.resolve.target import wants_devices
from pih_runtime.errors import ResolutionError

GRAPHS, TRANSPORT = "backend.graphs", "transport.collectives"


def check(found: Solution, profile: Profile, catalog: Catalog) -> None:
    """Raises ResolutionError with the profile's line."""
    intent = profile.intent
    backend = f"backend/{intent.backend.plugin}"

    def nobody(section: str, key: str, what: str, so: str, fix: str) -> ResolutionError:
        reason = profile.reason(catalog.root, section, key)
        return ResolutionError(f"Because {reason},\n  and {backend} {what}.\n  So {so} would serve nobody.", fix=fix)

    if intent.backend.graphs and not _takes(found, GRAPHS):
        fix = "remove backend.graphs, or name a backend that works with backend.graphs"
        raise nobody("backend", "graphs", "replays no steps", "graphs", fix)
    if intent.device.count and not any(_computes_on_devices(plugin) for plugin in found.plugins):
        others = sorted({plugin.id for plugin in catalog.plugins if _is_backend_of_devices(plugin)})
        names = " or ".join(f'"{name.partition("/")[2]}"' for name in others)
        fix = "remove [device]" + (names and f", or compute on it: backend.plugin = {names}")
        raise nobody("device", "count", "computes on the host's processor", "devices", fix)
    if intent.transport.plugin and intent.device.count <= 1 and not _takes(found, TRANSPORT):
        raise nobody("transport", "plugin", "has no rank to reach", "a transport", "remove transport.plugin")


def _takes(found: Solution, capability: str) -> bool:
    return any(capability in plugin.requires | plugin.optional for plugin in found.plugins)


def _computes_on_devices(plugin: Manifest) -> bool:
    """Whether what computes here does so on devices: it is made for them, reaches them, or is a rank on each."""
    if plugin.kind not in ("backend", "kernels"):
        return False
    reaches = plugin.permissions.devices or TRANSPORT in plugin.requires | plugin.optional
    return wants_devices(plugin.target) or bool(reaches)


def _is_backend_of_devices(plugin: Manifest) -> bool:
    return "backend.device" in plugin.provides and _computes_on_devices(plugin)
