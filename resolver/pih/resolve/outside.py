"""Plugins from outside the source tree, on their way into lock and build: artifacts that steps unpack as trees.

Everything else names a plugin's files as trees of the source tree, wherever they come from; here, and nowhere else,
the names are told apart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import attrs

from pih.build import purl
from pih.catalog import Catalog, Manifest
from pih.lock import Artifact, Lock, Step
from pih.origin import Held
from pih.pins import Pins
from pih.reading import json_of
from pih.resolve import explain
from pih.resolve.outcome import DeadEnd, Solution
from pih.structure import StructureError, dotted, structure
from pih_runtime.errors import ResolutionError
from pih_steps.plugins import PARAM, unpack

KERNELS = "kernels"  # the folder of a kernel pack's sources in its archive


@attrs.frozen
class OwnPins:
    """pins.json of a plugin from outside: the wheels that it imports and PIH does not pin."""

    schema: int
    artifacts: tuple[Artifact, ...]


def artifact_of(plugin: Manifest, catalog: Catalog, reasons: tuple[str, ...]) -> Artifact | None:
    """The archive that carries this plugin; None where it is the source tree's own."""
    origin = catalog.origin(plugin)
    if origin is None:
        return None
    return Artifact(
        name=f"plugin/{plugin.id}",
        version=plugin.version,
        kind="plugin",
        sha256=origin.sha256,
        size=origin.size,
        purls=(purl.render("generic", "plugin", "", origin.place),),
        licence=plugin.licence,
        reasons=reasons,
    )


def held(lock: Lock | None) -> tuple[Held, ...]:
    """The plugins from outside that a lock has, for `trust.Offers.beside`; none without a lock."""
    if lock is None:
        return ()
    carried = {artifact.name: artifact for artifact in lock.artifacts}
    return tuple(
        Held(plugin.id, plugin.version, purl.parse(archive.purls[0]).qualifiers, plugin.trust, archive.sha256)
        for plugin in lock.plugins
        if (archive := carried.get(plugin.artifact)) and archive.purls
    )


def pinned(pins: Pins, plugins: Iterable[Manifest], catalog: Catalog) -> Pins:
    """`pins` with the wheels that these plugins bring pins for; what the release has tested is not replaced."""
    known = {(artifact.kind, artifact.name) for artifact in pins.artifacts}
    added: dict[tuple[str, str], Artifact] = {}
    for plugin in plugins:
        origin = catalog.origin(plugin)
        for artifact in _own_pins(plugin, origin.pins) if origin and origin.pins else ():
            key = (artifact.kind, artifact.name)
            if artifact.kind == "wheel" and key not in known:
                added.setdefault(key, artifact)
    return attrs.evolve(pins, artifacts=(*pins.artifacts, *added.values()))


def _own_pins(plugin: Manifest, raw: bytes) -> tuple[Artifact, ...]:
    where, fix = f"pins.json of {plugin.id} {plugin.version}", "have its author write it as plugins/pins.json is"
    try:
        return structure(json_of(raw), OwnPins).artifacts
    except StructureError as failure:
        first = failure.problems[0]
        raise ResolutionError(f"{dotted(first.path)}: {first.what}", where=where, fix=fix) from failure
    except ValueError as problem:
        raise ResolutionError(f"not JSON: {problem}", where=where, fix=fix) from problem


def place(step: Step, carried: Mapping[str, Artifact]) -> Step:
    """The step with trees of these plugins, by id, as what it unpacks of their archives."""
    wanted: dict[str, dict[str, str]] = {}
    for tree in step.trees:
        owner, inner = _owner(tree, carried)
        if owner:
            wanted.setdefault(carried[owner].name, {})[tree] = inner
    if not wanted:
        return step
    return attrs.evolve(
        step,
        params={**step.params, PARAM: wanted},
        artifacts=(*step.artifacts, *(name for name in sorted(wanted) if name not in step.artifacts)),
        trees=tuple(tree for tree in step.trees if not _owner(tree, carried)[0]),
    )


def digests(trees: Iterable[str], carried: Mapping[str, Artifact]) -> dict[str, str]:
    """sha256 of the archive of each of these trees that is not of the source tree."""
    owners = {tree: _owner(tree, carried)[0] for tree in trees}
    return {tree: carried[owner].sha256 for tree, owner in owners.items() if owner}


@contextmanager
def places(
    root: Path, trees: Iterable[str], carried: Mapping[str, Artifact], fetch: Callable[[Artifact], Path]
) -> Iterator[Callable[[str], Path]]:
    """A function: tree → its path, of the source tree or unpacked while the context lasts."""
    owners = sorted({owner for tree in trees if (owner := _owner(tree, carried)[0])})
    with TemporaryDirectory(prefix="pih-plugins-") as folder:
        roots = {owner: Path(folder, str(number)) for number, owner in enumerate(owners)}
        for owner, target in roots.items():
            unpack(fetch(carried[owner]), target)

        def find(tree: str) -> Path:
            owner, inner = _owner(tree, carried)
            return roots[owner] / inner if owner else root / tree

        yield find


def failure(end: DeadEnd, chain: str, catalog: Catalog, own: ResolutionError) -> ResolutionError:
    """The error of a search that found nothing, where plugins that would have served are not to be had.

    chain: what leads to the need. own: the error without them, which stands where there are none. Whatever could not be
    read of a place that the profile names might have served.
    """
    wanted, capability = end.need.plugin, end.need.capability
    fitting = [
        item
        for item in catalog.refused
        if (item.id == wanted if wanted else capability in item.provides) or (item.entry >= 0 and not item.version)
    ]
    if not fitting:
        return own
    causes = [f"{item.id} {item.version} ({item.source}) is refused: {item.why}".replace("  ", " ") for item in fitting]
    tables = "".join(dict.fromkeys(item.table for item in fitting))
    fixes = ", or ".join(dict.fromkeys(item.fix for item in fitting))
    if any(refusal.cause != "other" for refusal in end.refusals):
        also = "".join(f"\n  Besides, {cause}." for cause in causes)
        return ResolutionError(f"{own.what}{also}{tables}", where=own.where, fix=f"{own.fix}, or {fixes}")
    because = "".join(f",\n  and {cause}" for cause in causes)
    return ResolutionError(
        f"Because {chain}{because}.\n  So {wanted or capability} cannot be chosen.{tables}", fix=fixes
    )


def check_decided(found: Solution, catalog: Catalog) -> None:
    """Raises ResolutionError where several places have other files of a chosen plugin, and nothing says which."""
    for need, plugin in found.served:
        origin = catalog.origin(plugin)
        if origin is not None and origin.rivals:
            sources = " and ".join((f"{origin.source} (signed by {origin.trust})", *origin.rivals))
            raise ResolutionError(
                f"Because {explain.chain(need, found.served)},\n"
                f"  and {sources} have different files of {plugin.id} {plugin.version}.\n"
                "  So which of them is meant is for you to say.",
                fix="name the place in the profile ([[plugins]] path = …, or package = …), or take the others out of "
                "your keyring: pih catalog remove NAME",
            )


def _owner(tree: str, carried: Mapping[str, Artifact]) -> tuple[str, str]:
    """(id of the plugin that this tree is of, path in its archive); ('', '') for the source tree's own."""
    for identity in carried:
        if tree == identity:
            return identity, KERNELS
        if tree == f"plugins/{identity}" or tree.startswith(f"plugins/{identity}/"):
            return identity, tree.removeprefix(f"plugins/{identity}").lstrip("/")
    return "", ""


def source_of(plugin: Manifest, catalog: Catalog) -> dict[str, Any]:
    """What a lock says of where a plugin comes from and on whose word."""
    origin = catalog.origin(plugin)
    if origin is None:
        return {"source": "workspace", "trust": "built-in", "artifact": ""}
    return {"source": origin.source, "trust": origin.trust, "artifact": f"plugin/{plugin.id}"}
