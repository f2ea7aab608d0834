"""A bundle's decisions as an operator wants them first: target, model, plugins with reasons, fallbacks, budget."""

from __future__ import annotations

from typing import Any

import attrs

from pih import licences
from pih.inspect import bundle, causes, device_code, reasons, why
from pih.inspect.opened import Opened
from pih.lock import Lock, Plugin
from pih.structure import unstructure


@attrs.frozen
class Reasoned:
    """A plugin with its shortest reason."""

    plugin: Plugin
    reason: str


def plugins(lock: Lock) -> tuple[Reasoned, ...]:
    """Every plugin, in the order of the lock."""
    graph = causes.of_lock(lock)
    found = []
    for plugin in lock.plugins:
        chains, _ = why.reasoned(graph, ("plugin", plugin.id))
        found.append(Reasoned(plugin, reasons.joined(chains[0])))
    return tuple(found)


def target(lock: Lock) -> str:
    """`linux x86_64 x86-64-v3, 2 threads, 512.0 MiB`, and the accelerators where there are any."""
    wanted, device = lock.target, lock.target.device
    host = f"{wanted.os} {wanted.arch} {wanted.isa}, {wanted.threads} threads, {mib(wanted.memory_bytes)}"
    if device is None:
        return host
    driver = f", driver {device.driver} or newer" if device.driver else ""
    return f"{host}; {device.count} x {device.sm or 'device'}, {mib(device.memory_bytes)} each{driver}"


def budget(lock: Lock) -> str:
    """The sum that the worker allocates, against the target's memory; of devices and host apart where there are any."""
    sums = lock.budget
    computed = [("weights", sums.weights), ("KV cache", sums.kv), ("activations", sums.activations)]
    beside = [("spill", sums.spill), ("host", sums.host)]
    if not sums.device:
        return _sum([*computed, *beside], sums.total, sums.limit)
    computed.append(("driver", sums.device - sums.weights - sums.kv - sums.activations))
    return f"{_sum(computed, sums.device, sums.device_limit)} on each device; {_sum(beside, sums.total, sums.limit)}"


def _sum(named: list[tuple[str, int]], total: int, limit: int) -> str:
    return f"{' + '.join(f'{name} {mib(size)}' for name, size in named if size)} = {mib(total)} of {mib(limit)}"


def fallbacks(lock: Lock) -> list[str]:
    """Each path that is slower or less exact than the model asks for, in words."""
    return list(lock.fallbacks)


def seal(held: Opened) -> str:
    """In whose names the bundle is signed; nothing here checks that they did."""
    if not held.sealable:
        return "not known: this form of a bundle keeps no seal"
    if held.seal is None:
        return "no: unsigned, without SBOM and provenance"
    if not held.seal.signers:
        return "SBOM and provenance, unsigned"
    return f"SBOM and provenance, signed in the name of {', '.join(held.seal.signers)} (pih verify checks it)"


def weights(lock: Lock) -> str:
    """How they come, what says which they are, and when they are checked against it."""
    asked = lock.weights
    when = "at start" if asked.verify == "start" else "at first use"
    if asked.delivery == "embed":
        return f"in the image, checked {when}"
    if asked.pinned:
        return f"separate, checked {when} against {asked.digest}"
    return "separate, not pinned: the worker takes any that fit the plan"


def weights_json(lock: Lock) -> dict[str, Any]:
    """The same for scripts."""
    return {**attrs.asdict(lock.weights), "pinned": lock.weights.pinned}


def mib(count: int) -> str:
    """Bytes as people read them."""
    return f"{count / 2**20:.1f} MiB"


def permissions(plugin: Plugin) -> tuple[str, ...]:
    """What a plugin may reach beyond its own memory, in words."""
    asked = plugin.permissions
    network = {"none": (), "listen": ("listen on a port",)}.get(asked.network, (asked.network,))
    return (*network, *asked.devices, *asked.paths, *(f"${name}" for name in asked.environment))


def as_json(held: Opened) -> dict[str, Any]:
    """`{identity, layers, files}` and the decisions behind them, the shape that scripts rely on."""
    lock = held.lock
    rows = bundle.components(held.contents, bundle.known(lock), licences.of_components(lock))
    return bundle.as_json(held.contents) | {
        "seal": attrs.asdict(held.seal) if held.seal else None,
        "versions": {"pih": lock.pih, "lock": lock.schema},
        "profile": unstructure(lock.profile),
        "target": unstructure(lock.target),
        "model": unstructure(lock.model),
        "limits": unstructure(lock.limits),
        "service": unstructure(lock.service),
        "weights": weights_json(lock),
        "requires": unstructure(lock.requires),
        "plugins": [
            {
                "id": row.plugin.id,
                "version": row.plugin.version,
                "source": row.plugin.source,
                "trust": row.plugin.trust,
                "artifact": row.plugin.artifact,
                "provides": row.plugin.provides,
                "requires": unstructure(row.plugin.requires),
                "permissions": unstructure(row.plugin.permissions),
                "reason": row.reason,
            }
            for row in plugins(lock)
        ],
        "start_order": list(lock.start_order),
        "plan": unstructure(lock.plan),
        "bindings": unstructure(lock.bindings),
        "fallbacks": unstructure(lock.fallbacks),
        "device_code": device_code.as_json(held.code),
        "budget": unstructure(lock.budget),
        "components": [attrs.asdict(row) for row in rows],
        "artifacts": unstructure(lock.artifacts),
    }
