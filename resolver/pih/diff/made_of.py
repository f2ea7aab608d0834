"""What differs in what a deployment is made of, in sentences: plugins, artifacts, permissions, licences."""

from __future__ import annotations

from collections.abc import Iterator

from pih.diff.difference import Change, Difference
from pih.diff.sentence import Sentence, by, listed

_PARTS = {
    "base": "Base userland",
    "wheels": "Wheels",
    "model": "Model files",
    "build": "Build tools, no part of the image",
}


def sentences(found: Difference) -> Iterator[Sentence]:
    """Plugins first, for they bring the rest."""
    for said in (_plugins, _artifacts, _permissions, _licences):
        yield from said(found)


def _plugins(found: Difference) -> Iterator[Sentence]:
    for row in found.plugins:
        size = by(found, row.name)
        if row.old and row.new:
            yield Sentence(f"Plugin {row.name} {row.old} → {row.new}{size}.", frozenset([row.name]))
        elif row.new:
            yield Sentence(f"New plugin {row.name} {row.new}{size}.", frozenset([row.name]))
        else:
            yield Sentence(f"Plugin {row.name} {row.old} is gone{size}.", frozenset([row.name]))
    old = {(item.id, item.version): item.manifest for item in found.old.plugins}
    for item in found.new.plugins:
        if old.get((item.id, item.version), item.manifest) != item.manifest:
            yield Sentence(f"Plugin {item.id} has another manifest under the same version, {item.version}.")


def _artifacts(found: Difference) -> Iterator[Sentence]:
    moved = any(row.name == "source" for row in found.weights)  # the weights' own sentence names both
    weights = {side.weights.artifact for side in (found.old, found.new)} if moved else set()
    parts = {item.name: item.part for side in (found.old, found.new) for item in side.artifacts}
    for part, title in _PARTS.items():
        rows = [row for row in found.artifacts if parts[row.name] == part and row.name not in weights]
        if rows:
            names = frozenset(row.name for row in rows)
            yield Sentence(f"{title}: {listed([_versions(row) + by(found, row.name) for row in rows])}.", names)


def _versions(row: Change) -> str:
    if row.old and row.new:
        return f"{row.name} {row.old} → {row.new}"
    return f"{row.name} {row.new} is new" if row.new else f"{row.name} {row.old} is gone"


def _permissions(found: Difference) -> Iterator[Sentence]:
    for row in found.permissions:
        plugin, _, what = row.name.partition(": ")
        verb = _reach(what)
        yield Sentence(f"{plugin} may {'now' if row.new else 'no longer'} {verb}.")


def _reach(what: str) -> str:
    """With a verb: a path, a family of devices and a variable are named alone."""
    if what.startswith("$"):
        return f"read {what} of the host"
    return f"use {what} of the host" if "/" in what else what


def _licences(found: Difference) -> Iterator[Sentence]:
    for row in found.licences:
        yield Sentence(f"Licence of {row.name}: {row.old} → {row.new}.")
    fresh = [f"{name} ({found.new.licences.get(name, 'NOASSERTION')})" for name in found.new_components]
    if fresh:
        yield Sentence(f"New in the image: {listed(fresh)}.")
