"""In which order the plugins of a solution start, and who goes round in a circle where there is none."""

from __future__ import annotations

from pih.catalog import Manifest
from pih.resolve.outcome import Solution


def providers_of(plugin: Manifest, solution: Solution) -> dict[str, Manifest]:
    """The plugins that serve what this one requires, and what it can use where it is there anyway."""
    required = {need.capability: provider for need, provider in solution.served if need.by == plugin.id}
    used = {
        capability: other
        for capability in sorted(plugin.optional)
        for other in solution.plugins
        if capability in other.provides and other.id != plugin.id
    }
    return used | required


def start_order(solution: Solution) -> tuple[str, ...]:
    """Ids of the plugins that run, each after those it uses; ties by id. Empty where they go round in a circle."""
    running = {plugin.id: plugin for plugin in solution.plugins if plugin.runtime is not None}
    after = {
        name: {provider.id for provider in providers_of(plugin, solution).values()} & running.keys()
        for name, plugin in running.items()
    }
    order: list[str] = []
    while len(order) < len(running):
        ready = sorted(name for name in running if name not in order and after[name] <= set(order))
        if not ready:
            return ()
        order.append(ready[0])
    return tuple(order)


def circle(solution: Solution) -> tuple[str, ...]:
    """Plugins that run and require each other in a circle, the first also last; of a solution that cannot start."""
    running = {plugin.id: plugin for plugin in solution.plugins if plugin.runtime is not None}
    after = {
        name: sorted({p.id for p in providers_of(plugin, solution).values()} & running.keys())
        for name, plugin in running.items()
    }
    while free := [name for name, others in after.items() if not others]:
        after = {name: [other for other in others if other not in free] for name, others in after.items() if others}
    path = [min(after)] if after else []
    while path and path[-1] not in path[:-1]:
        path.append(after[path[-1]][0])
    return tuple(path[path.index(path[-1]) :]) if path else ()
