"""`explain`: every decision of a lock as a tree, each with its reason and the profile's line that it goes back to."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import attrs

from pih.inspect import causes, overview, reasons, why
from pih.inspect.bundle import origin
from pih.inspect.overview import mib
from pih.inspect.reasons import Chain
from pih.lock import Binding, Lock
from pih.profile import Profile
from pih.structure import unstructure

_NAMES = 8  # artifacts that a line names before it counts the rest


@attrs.frozen
class Branch:
    """A line of the tree and what belongs below it."""

    text: str
    below: tuple[Branch, ...] = ()


@attrs.frozen
class Choice:
    """A capability and who provides it. chains: every reason, the shortest first. origin: '' for the tree's own."""

    capability: str
    version: str
    provider: str
    provider_version: str
    origin: str
    chains: tuple[Chain, ...]


@attrs.frozen
class Served:
    """An op and the kernels that serve it, one for each shape. variants: their formats and precision, in words."""

    op: str
    kernels: tuple[str, ...]
    variants: tuple[str, ...]


@attrs.frozen
class Group:
    """Artifacts that are there for the same reason."""

    chain: Chain
    kind: str
    names: tuple[str, ...]
    size: int


@attrs.frozen
class Explanation:
    """The decisions. profile: its path. lines: its line of a key, e.g. `limits.context`, by that key."""

    lock: Lock
    profile: Path
    choices: tuple[Choice, ...]
    ops: tuple[Served, ...]
    fallbacks: tuple[str, ...]
    artifacts: tuple[Group, ...]
    lines: dict[str, str]


def explanation(lock: Lock, profile: Profile, root: Path) -> Explanation:
    """Put the lock's decisions together with the profile's lines as they are now. root: of the source tree."""
    graph = causes.of_lock(lock)

    def chains(key: causes.Key) -> tuple[Chain, ...]:
        return tuple(reasons.current(chain, profile) for chain in why.reasoned(graph, key)[0])

    choices = [
        Choice(capability, version, plugin.id, plugin.version, origin(plugin), chains(("plugin", plugin.id)))
        for plugin in lock.plugins
        for capability, version in plugin.provides.items()
    ]
    return Explanation(
        lock=lock,
        profile=profile.path,
        choices=tuple(sorted(choices, key=lambda choice: choice.capability)),
        ops=served(lock),
        fallbacks=tuple(overview.fallbacks(lock)),
        artifacts=_groups(lock, lambda name: chains(("artifact", name))[0]),
        lines={
            f"{section}.{key}": profile.reason(root, section, key)
            for section, key in (
                ("target", "isa"),
                ("target", "memory"),
                ("limits", "context"),
                ("limits", "batch"),
                ("limits", "tokens"),
                ("limits", "spill"),
                ("device", "memory"),
                ("kernels", "fallback"),
                ("weights", "format"),
                ("weights", "delivery"),
                ("weights", "verify"),
                ("weights", "digest"),
            )
        },
    )


def served(lock: Lock) -> tuple[Served, ...]:
    """Every op that the plan calls, by name."""
    found = {}
    for op in sorted({binding.op for binding in lock.bindings}):
        bindings = [binding for binding in lock.bindings if binding.op == op]
        found[op] = Served(
            op,
            tuple(binding.symbol for binding in bindings),
            tuple(dict.fromkeys(f"{_formats(binding)}: {binding.precision}" for binding in bindings)),
        )
    return tuple(found.values())


def _formats(binding: Binding) -> str:
    slow = "scalar reference, " if binding.path == "reference" else ""
    weights = f"{binding.weight} weights in {binding.layout}, " if binding.weight else ""
    return f"{slow}{weights}{binding.activation} activations"


def _groups(lock: Lock, chain_of: Callable[[str], Chain]) -> tuple[Group, ...]:
    """Those that one plugin imports belong together: their names are taken out of their reasons."""
    groups: dict[tuple[Chain, str], list[tuple[str, int]]] = {}
    for artifact in lock.artifacts:
        *above, last = chain_of(artifact.name)
        chain = (*above, re.sub(rf" {re.escape(artifact.name)}$", " it", last))
        groups.setdefault((chain, artifact.kind), []).append((artifact.name, artifact.size))
    return tuple(
        Group(chain, kind, tuple(name for name, _ in held), sum(size for _, size in held))
        for (chain, kind), held in groups.items()
    )


def tree(found: Explanation) -> Branch:
    """The decisions for people."""
    lock = found.lock
    return Branch(
        f"{lock.profile.name} ({lock.profile.file})",
        (
            Branch(f"target: {overview.target(lock)}", (Branch(found.lines["target.isa"]),)),
            Branch("capabilities", tuple(_choice(choice, found.profile) for choice in found.choices)),
            Branch(f"ops: {lock.plan.calls} calls, {len(lock.bindings)} kernels", tuple(map(_served, found.ops))),
            _fallbacks(found),
            _reaches(lock),
            _budget(found),
            Branch(
                f"artifacts: {len(lock.artifacts)}, {mib(sum(artifact.size for artifact in lock.artifacts))}",
                tuple(map(_group, found.artifacts)),
            ),
            _weights(found),
        ),
    )


def _choice(choice: Choice, profile: Path) -> Branch:
    more = len(choice.chains) - 1
    asked = shlex.join(["pih", "why", choice.provider, "--profile", str(profile)])
    others = [Branch(f"and in {more} more {'ways' if more > 1 else 'way'}: {asked}")] if more else []
    text = f"{choice.capability} {choice.version} → {choice.provider} {choice.provider_version}"
    origins = [Branch(choice.origin)] if choice.origin else []
    return Branch(text, (*origins, *(_because(chain) for chain in choice.chains[:1]), *others))


def _because(chain: Iterable[str]) -> Branch:
    """From the reason nearest to the decision up to the profile's line."""
    first, *up = reversed(tuple(chain))
    branch: Branch | None = None
    for text in reversed(up):
        branch = Branch(text, (branch,) if branch else ())
    return Branch(first, (branch,) if branch else ())


def _served(served: Served) -> Branch:
    if len(served.kernels) == 1:
        return Branch(f"{served.op} → {served.kernels[0]}", (Branch(served.variants[0]),))
    return Branch(f"{served.op} → {len(served.kernels)} kernels", tuple(map(Branch, served.variants)))


def _fallbacks(found: Explanation) -> Branch:
    line = Branch(found.lines["kernels.fallback"])
    if not found.fallbacks:
        return Branch("fallbacks: none, every op has its kernel", (line,))
    return Branch(f"fallbacks: {len(found.fallbacks)}", (*map(Branch, found.fallbacks), line))


def _reaches(lock: Lock) -> Branch:
    """What the worker may use of the host, by plugin."""
    asked = {plugin.id: overview.permissions(plugin) for plugin in lock.plugins}
    below = (Branch(f"{name}: {', '.join(things)}") for name, things in asked.items() if things)
    return Branch("reach: what plugins may use of the host", tuple(below))


def _weights(found: Explanation) -> Branch:
    keys = ("format", "delivery", "verify", *(["digest"] if found.lock.weights.delivery == "separate" else []))
    lines = [found.lines[f"weights.{key}"] for key in keys]
    return Branch(f"weights: {overview.weights(found.lock)}", tuple(map(Branch, lines)))


def _budget(found: Explanation) -> Branch:
    sums, lines = found.lock.budget, found.lines
    parts = [
        Branch(f"weights {mib(sums.weights)}"),
        Branch(f"KV cache {mib(sums.kv)}", (Branch(lines["limits.context"]), Branch(lines["limits.batch"]))),
        Branch(f"activations {mib(sums.activations)}", (Branch(lines["limits.tokens"]),)),
        Branch(f"host {mib(sums.host)}: the interpreter and {len(found.lock.start_order)} plugins"),
    ]
    if sums.spill:
        parts.append(Branch(f"spill {mib(sums.spill)}", (Branch(lines["limits.spill"]),)))
    if sums.device:
        spare = mib(sums.device_limit - sums.device)
        device = f"each device: {mib(sums.device)} of {mib(sums.device_limit)}, {spare} to spare"
        parts.append(Branch(device, (Branch(lines["device.memory"]),)))
    limit = Branch(
        f"limit {mib(sums.limit)}, {mib(sums.limit - sums.total)} to spare", (Branch(lines["target.memory"]),)
    )
    return Branch(f"memory: {mib(sums.total)}", (*parts, limit))


def _group(group: Group) -> Branch:
    names = ", ".join(group.names[:_NAMES])
    rest = f" and {len(group.names) - _NAMES} more" if len(group.names) > _NAMES else ""
    return Branch(f"{group.kind}, {mib(group.size)}: {names}{rest}", (_because(group.chain),))


def as_json(found: Explanation) -> dict[str, Any]:
    """The same for scripts; a chain's first link is the profile's line."""
    lock = found.lock
    return {
        "profile": unstructure(lock.profile),
        "target": unstructure(lock.target),
        "capabilities": [unstructure(choice) for choice in found.choices],
        "ops": [unstructure(served) for served in found.ops],
        "fallbacks": unstructure(lock.fallbacks),
        "permissions": {plugin.id: unstructure(plugin.permissions) for plugin in lock.plugins},
        "budget": unstructure(lock.budget),
        "weights": overview.weights_json(lock),
        "artifacts": [unstructure(group) for group in found.artifacts],
        "lines": found.lines,
    }
