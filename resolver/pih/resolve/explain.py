"""Words for the resolver: chains of reasons, and failures as "Because … So … To fix: …"."""

from __future__ import annotations

from pih.catalog import Manifest
from pih.resolve.solve import DeadEnd, Need, Refusal
from pih.structure import nearest
from pih_runtime.errors import ResolutionError

ARROW = " → "
Served = tuple[tuple[Need, Manifest], ...]


def chain(need: Need, served: Served) -> str:
    """How a need goes back to a line of the profile: `x.toml:7 … → model/llama requires model.text >=1.0,<2`."""
    parts: list[str] = []
    seen: set[str] = set()
    while need.by and need.by not in seen:
        parts.append(f"{need.by} requires {need.capability} {need.specifier}")
        seen.add(need.by)
        need = next(other for other, plugin in served if plugin.id == need.by)
    return ARROW.join([need.reason, *reversed(parts)])


def reasons(plugin: Manifest, served: Served) -> tuple[str, ...]:
    """Every chain that ends at this plugin, in the order of the search."""
    return tuple(chain(need, served) for need, provider in served if provider.id == plugin.id)


def failure(end: DeadEnd, catalog: tuple[Manifest, ...]) -> ResolutionError:
    """The error of a search that found nothing."""
    why = chain(end.need, end.served)
    wanted = f"{end.need.capability} {end.need.specifier}"
    if end.need.plugin:
        named = next((plugin for plugin in catalog if plugin.id == end.need.plugin), None)
        if named is None or end.need.capability not in named.provides:
            return _unknown(end.need, catalog)
    refusals = [refusal for refusal in end.refusals if refusal.cause != "other"]
    if not refusals:
        return ResolutionError(
            f"Because {why},\n  and no plugin provides {end.need.capability} at all.\n  So {wanted} cannot be served.",
            fix=f"add a plugin that provides {end.need.capability}, or do not ask for what needs it",
        )
    causes = "".join(f",\n  and {item.plugin.id} {item.plugin.version} is out: {item.detail}" for item in refusals)
    return ResolutionError(f"Because {why}{causes}.\n  So nothing serves {wanted}.", fix=_fix(end.need, refusals))


def _unknown(need: Need, catalog: tuple[Manifest, ...]) -> ResolutionError:
    kind = need.plugin.split("/")[0]
    known = sorted(plugin.id for plugin in catalog if need.capability in plugin.provides)
    near = nearest(need.plugin, known)
    meant = f"did you mean {near}? " if near else ""
    return ResolutionError(
        f"Because {need.reason},\n"
        f"  and the catalog has no {kind} plugin {need.plugin} that provides {need.capability}.\n"
        f"  So {need.capability} cannot be served.",
        fix=f"{meant}the catalog has {', '.join(known) or f'no {kind} plugin at all'}",
    )


def _fix(need: Need, refusals: list[Refusal]) -> str:
    """One cure for each cause, the first of each kind."""
    cures = {
        "target": "change the profile's target to one that the plugin is made for",
        "version": f"bring a plugin whose {need.capability} is {need.specifier}",
        "taken": "ask for features that need one provider only",
        "conflict": "leave out one of the two plugins",
    }
    causes = dict.fromkeys(refusal.cause for refusal in refusals)
    return ", or ".join(cures[cause] for cause in causes if cause in cures)
