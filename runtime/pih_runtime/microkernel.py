"""The microkernel: starts the lock's plugins in order, and always stops what it started, in reverse.

It knows no model, no device and no protocol. It imports the plugins that the lock names and no other.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from pih_runtime.contracts import Context
from pih_runtime.errors import PihError, WorkerError, described
from pih_runtime.lock import Lock, Plugin

Log = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Started:
    """A plugin and what its entry returned."""

    plugin: Plugin
    provider: Any


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What every plugin's context has in common."""

    root: Path
    listen: str
    log: Log
    ready: Callable[[], bool]
    fail: Callable[[BaseException], None]


def start(lock: Lock, surroundings: Surroundings) -> Iterator[Started]:
    """Import every plugin of the lock, then start one after another; raises at the first that cannot.

    Whatever happens, the caller stops what it was given: a plugin that raised has released its own.
    """
    entries = [(plugin, _import(plugin)) for plugin in lock.plugins]
    providers: dict[str, Any] = {}
    for plugin, entry in entries:
        context = Context(
            root=surroundings.root,
            settings=plugin.settings,
            lock=lock.data,
            listen=surroundings.listen,
            provider=partial(_provider, plugin, providers),
            log=surroundings.log,
            ready=surroundings.ready,
            fail=surroundings.fail,
        )
        try:
            providers[plugin.id] = entry(context)
        except PihError:
            raise
        except (Exception, SystemExit) as problem:
            raise WorkerError(f"failed to start: {described(problem)}", where=f"plugin {plugin.id}") from problem
        yield Started(plugin, providers[plugin.id])


def drain(started: Sequence[Started]) -> None:
    """Let providers that have work in hand (those with `drain()`) end it, in reverse order."""
    for item in reversed(started):
        if hasattr(item.provider, "drain"):
            item.provider.drain()


def stop(started: Sequence[Started]) -> list[str]:
    """Stop in reverse order; an error of one keeps none of the others. Returns what went wrong, in order."""
    problems = []
    for item in reversed(started):
        if not hasattr(item.provider, "stop"):
            continue
        try:
            item.provider.stop()
        except Exception as problem:  # noqa: BLE001 - all are reported, none may keep the next from stopping
            problems.append(f"plugin {item.plugin.id} failed to stop: {described(problem)}")
    return problems


def _import(plugin: Plugin) -> Callable[[Context], Any]:
    module, _, name = plugin.entry.partition(":")
    try:
        entry = getattr(importlib.import_module(module), name)
    except Exception as problem:
        raise WorkerError(f"cannot be imported: {described(problem)}", where=f"plugin {plugin.id}") from problem
    if not callable(entry):
        raise WorkerError(f"{plugin.entry} is not a function", where=f"plugin {plugin.id}")
    return entry  # type: ignore[no-any-return]


def _provider(plugin: Plugin, providers: dict[str, Any], capability: str) -> Any:
    """What serves a capability that `plugin` requires; it gets no other."""
    if capability not in plugin.requires:
        raise WorkerError(f"asks for {capability}, which its plugin.toml does not require", where=f"plugin {plugin.id}")
    if plugin.requires[capability] not in providers:
        raise WorkerError(f"asks for {capability}, which the build served", where=f"plugin {plugin.id}")
    return providers[plugin.requires[capability]]
