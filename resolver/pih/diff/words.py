"""A difference in sentences that a reviewer understands, the weightiest first.

A sentence that explains the size of components names them as told; the last sentence tells the rest, so that every
byte that came or went is in the text.
"""

from __future__ import annotations

from collections.abc import Iterator

from pih.diff import backend, made_of, ranks, running
from pih.diff.amounts import change, shown, signed
from pih.diff.difference import Difference, Sizes
from pih.diff.facts import Facts
from pih.diff.sentence import Sentence, listed


def headline(found: Difference) -> str:
    """The deployment's name and what became of its size."""
    old, new, image = found.old, found.new, found.image
    name = new.name if old.name == new.name else f"{old.name} → {new.name}"
    if old.image and new.image and old.image.digest == new.image.digest != "":
        return f"{name}: the same image."
    if image is None:
        return f"{name}: {'no decision differs' if found.same else 'other decisions'}; {_one_sided(old, new)}."
    if found.same:
        return f"{name}: nothing differs."
    sizes = [_total(image.size), _total(image.compressed)]
    return f"{name}: {', '.join(filter(None, sizes))}."


def sentences(found: Difference) -> tuple[str, ...]:
    """Everything that differs, a line each; then what could not be compared."""
    computes, left = backend.told(found)
    joins, left = ranks.told(left)
    said = (*computes, *joins, *running.sentences(left), *made_of.sentences(left))
    said = said or tuple(_lock(found))
    told = frozenset().union(*(sentence.told for sentence in said))
    rest = _rest(found, told)
    return (*(sentence.text for sentence in (*said, *rest)), *(f"Not compared: {what}." for what in found.unknown))


def _one_sided(old: Facts, new: Facts) -> str:
    """What is known of sizes where a side is a lock."""
    for side in (new, old):
        if side.image:
            shipped = f", {shown(side.image.compressed)} compressed" if side.image.compressed else ""
            return f"{side.where} has {shown(side.image.size)} unpacked{shipped}, the other side is a lock"
    return "sizes are not known from a lock"


def _total(sizes: Sizes) -> str:
    if sizes.old is None or sizes.new is None:
        return ""
    return f"{shown(sizes.new)} {sizes.name} ({change(sizes.old, sizes.new)})"


def _lock(found: Difference) -> Iterator[Sentence]:
    """What no sentence is about: that it changed is told all the same."""
    for row in found.plan:
        yield Sentence(f"The plan of the model's calls is another one: {row.old} → {row.new}.")
    if found.parts and not found.plan:
        yield Sentence(f"Only these parts of the lock changed: {listed(found.parts)}.")


def _rest(found: Difference, told: frozenset[str]) -> Iterator[Sentence]:
    """Components that no sentence has accounted for."""
    rows = [row for row in (found.image.components if found.image else ()) if row.name not in told]
    grown = [f"{row.name} {signed(row.size.growth)}" for row in rows if row.size.growth]
    if grown:
        yield Sentence(f"Besides: {listed(grown)}.")
    same = [row.name for row in rows if not row.size.growth]
    if same:
        yield Sentence(f"Of the same size, with other bytes: {listed(same)}.")
