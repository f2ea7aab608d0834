"""A difference as text for a terminal and as JSON for machines."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pih.diff.amounts import shown, signed
from pih.diff.difference import Change, Difference, ImageChange, Sizes
from pih.diff.facts import Facts
from pih.diff.gates import Tripped
from pih.diff.words import headline, sentences
from pih.structure import unstructure

FILES = 20  # of the largest changes; JSON has all


def lines(found: Difference) -> Iterator[tuple[str, ...]]:
    """Rows of text; a row of several cells belongs to a table, an empty one ends it."""
    yield (headline(found),)
    for sentence in sentences(found):
        yield (f"- {sentence}",)
    if found.image is None or found.same:
        return
    yield ()
    yield from components(found.image)
    yield ()
    yield from layers(found.image)
    if found.image.files:
        yield ()
        yield from files(found.image, FILES)


def components(image: ImageChange) -> Iterator[tuple[str, ...]]:
    """A table: each component that differs, and the whole image."""
    yield ("component", "version", "before", "after", "change")
    for row in image.components:
        yield (row.name, version(row.version), *sizes(row.size))
    yield ("all", "", *sizes(image.size))


def layers(image: ImageChange) -> Iterator[tuple[str, ...]]:
    """A table: each layer that differs, as files and, where both sides know it, as it is shipped; the whole image."""
    shipped = None not in (image.compressed.old, image.compressed.new)
    yield ("layer", "", "before", "after", "change")
    for row in image.layers:
        yield (row.name, "unpacked", *sizes(row.size))
        if shipped:
            yield ("", "shipped", *sizes(row.compressed))
    yield ("all", "shipped", *sizes(image.compressed)) if shipped else ("all", "unpacked", *sizes(image.size))


def files(image: ImageChange, most: int) -> Iterator[tuple[str, ...]]:
    """A table of the files that came, went or have other bytes."""
    yield ("file", "component", "before", "after", "change")
    for row in image.files[:most]:
        yield (row.path, row.component, *sizes(row.size))
    rest = len(image.files) - most
    if rest > 0:
        yield (f"and {rest} more files", "", "", "", signed(sum(row.size.growth for row in image.files[most:])))


def version(change: Change) -> str:
    """`1.0`, or `1.0 → 1.1`."""
    return change.new if change.old == change.new else " → ".join(text or "none" for text in (change.old, change.new))


def sizes(row: Sizes) -> tuple[str, str, str]:
    """Before, after and their difference; '-' for what is not there."""
    before, after = ("-" if size is None else shown(size) for size in (row.old, row.new))
    same = row.old is not None and row.new is not None and row.growth == 0
    return before, after, "same size" if same else signed(row.growth) if (before, after) != ("-", "-") else ""


def as_json(found: Difference, tripped: tuple[Tripped, ...]) -> dict[str, Any]:
    """All of it, in bytes; the shape that scripts rely on."""
    image = found.image
    return {
        "old": _side(found.old),
        "new": _side(found.new),
        "same": found.same,
        "headline": headline(found),
        "sentences": list(sentences(found)),
        "settings": unstructure(found.settings),
        "weights": unstructure(found.weights),
        "plugins": unstructure(found.plugins),
        "artifacts": unstructure(found.artifacts),
        "permissions": unstructure(found.permissions),
        "licences": unstructure(found.licences),
        "new_components": list(found.new_components),
        "new_licences": unstructure(found.new_licences),
        "ops": list(found.ops),
        "modes": unstructure(found.modes),
        "fallbacks": unstructure(found.fallbacks),
        "memory": unstructure(found.memory),
        "plan": unstructure(found.plan),
        "parts": list(found.parts),
        "image": None if image is None else unstructure(image),
        "not_compared": list(found.unknown),
        "gates": unstructure(tripped),
    }


def _side(side: Facts) -> dict[str, Any]:
    image = side.image
    return {
        "where": side.where,
        "name": side.name,
        "kind": "lock" if image is None else "bundle",
        "digest": image.digest if image else "",
        "unpacked": image.size if image else None,
        "compressed": image.compressed if image else None,
    }
