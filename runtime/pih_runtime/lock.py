"""The worker's view of the Deployment Lock: what to import, in which order, within which budget.

The build-time program has the whole lock as data classes; a worker needs little of it, and
checks what it reads again: the lock is the only thing that tells it what to run.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pih_runtime import canonical
from pih_runtime.abi import ABI
from pih_runtime.contracts import ranks_of
from pih_runtime.errors import LockError
from pih_runtime.numbers import whole

SCHEMA = 1
_FIX = "build the bundle again with this PIH"


@dataclass(frozen=True, slots=True)
class Plugin:
    """A plugin with a runtime half. requires: capability -> id of the plugin that serves it."""

    id: str
    version: str
    package: str
    entry: str
    provides: tuple[str, ...]
    requires: Mapping[str, str]
    settings: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Lock:
    """plugins: those that run here, in start order. data: the whole lock, for plugins that read their part of it.

    ranks: of the deployment, one for each device.
    """

    profile: str
    pih: str
    fallbacks: tuple[str, ...]
    budget: Mapping[str, int]
    plugins: tuple[Plugin, ...]
    listen: str
    data: Mapping[str, Any]
    ranks: int = 1


def read(path: Path) -> Lock:
    """Read and check; LockError (exit 5) where the lock does not hold together or is for another worker."""
    try:
        data = json.loads(path.read_bytes().decode(), parse_int=whole)
    except OSError as problem:
        raise LockError(f"cannot read the lock: {problem.strerror}", where=str(path), fix=_FIX) from problem
    except (ValueError, RecursionError) as problem:
        raise LockError(f"not JSON: {problem}", where=str(path), fix=_FIX) from problem
    try:
        return _parse(data)
    except (KeyError, TypeError, AttributeError) as problem:
        raise LockError(f"not a lock: {problem!r}", where=str(path), fix=_FIX) from problem
    except LockError as problem:
        problem.where = problem.where or str(path)
        raise


def _parse(data: Mapping[str, Any]) -> Lock:
    if data["schema"] != SCHEMA:
        raise LockError(f"lock schema {data['schema']} is not {SCHEMA}", fix=_FIX)
    canonical.check(data, fix=_FIX)
    running = {item["id"]: item for item in data["plugins"] if item["runtime"] is not None}
    order = list(data["start_order"])
    if sorted(order) != sorted(running):
        odd = sorted(set(order) ^ set(running)) or order
        raise LockError(f"start_order is not each plugin that runs, once: {', '.join(odd)}", fix=_FIX)
    plugins = tuple(_plugin(running[name]) for name in order)
    _check_order(plugins)
    return Lock(
        profile=data["profile"]["name"],
        pih=data["pih"],
        fallbacks=tuple(data["fallbacks"]),
        budget=dict(data["budget"]),
        plugins=plugins,
        listen=f"{data['service']['host']}:{data['service']['port']}",
        data=data,
        ranks=ranks_of(data),
    )


def _plugin(item: Mapping[str, Any]) -> Plugin:
    if item["abi"] != ABI:
        raise LockError(f"plugin {item['id']} speaks ABI {item['abi']}, this worker ABI {ABI}", fix=_FIX)
    return Plugin(
        id=item["id"],
        version=item["version"],
        package=item["runtime"]["package"],
        entry=item["runtime"]["entry"],
        provides=tuple(item["provides"]),
        requires={need["capability"]: need["provider"] for need in item["requires"]},
        settings=dict(item["settings"]),
    )


def _check_order(plugins: tuple[Plugin, ...]) -> None:
    """A requirement on a plugin that runs here is served by one that starts before; others were met in the build."""
    running = {plugin.id for plugin in plugins}
    served: set[tuple[str, str]] = set()
    for plugin in plugins:
        for capability, provider in plugin.requires.items():
            if provider in running and (provider, capability) not in served:
                raise LockError(
                    f"plugin {plugin.id} requires {capability} of {provider}, which does not give it before", fix=_FIX
                )
        served.update((plugin.id, capability) for capability in plugin.provides)
