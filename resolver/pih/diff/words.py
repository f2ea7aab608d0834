"""A difference in sentences that a reviewer understands, the weightiest first.

A sentence that explains the size of components names them as told; the last sentence tells the rest, so that every
byte that came or went is in the text.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import attrs

from pih.diff.amounts import binary, change, shown, signed
from pih.diff.difference import Change, Component, Difference, Sizes
from pih.diff.facts import Facts
from pih.inspect.overview import mib

_MOST = 6  # names in one sentence
_PARTS = {
    "base": "Base userland",
    "wheels": "Wheels",
    "model": "Model files",
    "build": "Build tools, no part of the image",
}
_SECTIONS = ("limits.", "service.")


@attrs.frozen
class Sentence:
    """told: components of the image whose change of size it accounts for."""

    text: str
    told: frozenset[str] = frozenset()


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
    said = [
        *_target(found),
        *_weights(found),
        *_kernels(found),
        *_fallbacks(found),
        *_modes(found),
        *_plugins(found),
        *_artifacts(found),
        *_permissions(found),
        *_licences(found),
        *_settings(found),
        *_memory(found),
    ]
    told = frozenset().union(*(sentence.told for sentence in said))
    said += _rest(found, told)
    return (*(sentence.text for sentence in said), *(f"Not compared: {what}." for what in found.unknown))


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


def _component(found: Difference, name: str) -> Component | None:
    rows = found.image.components if found.image else ()
    return next((row for row in rows if row.name == name), None)


def _by(found: Difference, name: str) -> str:
    """` (+34.1 kB)` where a component's size changed, else ''."""
    row = _component(found, name)
    return f" ({signed(row.size.growth)})" if row and row.size.growth else ""


def _kernels_size(found: Difference) -> tuple[str, frozenset[str]]:
    """`; -60.0 kB` where the kernel pack's size changed, and what that accounts for."""
    pack = _pack(found.new)
    row = _component(found, pack)
    return f"; {signed(row.size.growth)}" if row and row.size.growth else "", frozenset([pack])


def _pack(side: Facts) -> str:
    """The plugin that the kernels are of."""
    return next((item.id for item in side.plugins if item.kind == "kernels"), "")


def _setting(found: Difference, name: str) -> Change | None:
    return next((row for row in found.settings if row.name == name), None)


def _target(found: Difference) -> Iterator[Sentence]:
    isa = _setting(found, "target.isa")
    if isa:
        size, pack = _kernels_size(found)
        yield Sentence(f"Target {isa.old} → {isa.new}: {_compiled(found)}{size}.", pack)
    for row in found.settings:
        if row.name.startswith("target.") and row.name != "target.isa":
            key = row.name.removeprefix("target.")
            values = [mib(int(text)) if key == "memory_bytes" else text or "none" for text in (row.old, row.new)]
            yield Sentence(f"Target {key.removesuffix('_bytes')}: {' → '.join(values)}.")


def _compiled(found: Difference) -> str:
    count = len({item.op for item in found.new.bindings})
    if not found.ops:
        return f"the same {len(found.new.bindings)} kernels for {count} ops, compiled for it"
    return f"{_other_kernels(found)}; all are compiled for it"


def _other_kernels(found: Difference) -> str:
    """`3 of 12 ops have other kernels (embed, linear, no quantize any more)`."""
    ops = [{item.op for item in side.bindings} for side in (found.old, found.new)]
    named = [
        f"{op} is new" if op not in ops[0] else f"no {op} any more" if op not in ops[1] else op
        for op in sorted(found.ops)
    ]
    verb = "has" if len(found.ops) == 1 else "have"
    return f"{len(found.ops)} of {len(ops[0] | ops[1])} ops {verb} other kernels ({_listed(named)})"


def _kernels(found: Difference) -> Iterator[Sentence]:
    """Where neither another target nor other weights have said it."""
    if found.ops and not _setting(found, "target.isa") and not _format(found):
        size, pack = _kernels_size(found)
        yield Sentence(f"Kernels: {_other_kernels(found)}{size}.", pack)


def _format(found: Difference) -> Change | None:
    return next((row for row in found.weights if row.name == "formats"), None)


def _source(found: Difference) -> Change | None:
    return next((row for row in found.weights if row.name == "source"), None)


def _weights(found: Difference) -> Iterator[Sentence]:
    changed = {row.name: row for row in found.weights}
    size, moved, formats = _component(found, "weights"), changed.get("delivery"), changed.get("formats")
    told = frozenset(["weights"])
    if moved:
        where = "out of" if moved.new == "separate" else "into"
        more = f": {_more(size.size.growth)}" if size else ""
        yield Sentence(f"Weights move {where} the image ({moved.old} → {moved.new}){more}.", told)
    if formats:
        sizes = f", {_size_change(size)}" if size and not moved else ""
        yield Sentence(f"Weights {_formats(formats.old)} → {_formats(formats.new)}{sizes}.", told)
        if found.ops and not _setting(found, "target.isa"):
            kernels, pack = _kernels_size(found)
            yield Sentence(f"For these weights {_other_kernels(found)}{kernels}.", pack)
    elif size and not moved:
        what = _size_change(size) if size.size.growth else f"other bytes, still {shown(size.size.new or 0)}"
        yield Sentence(f"Weights: {what}.", told)
    if "plugin" in changed:
        yield Sentence(f"The model is lowered by {changed['plugin'].new} instead of {changed['plugin'].old}.")
    if "source" in changed:
        yield Sentence(f"The weights come from {changed['source'].new} instead of {changed['source'].old}.")


def _size_change(row: Component) -> str:
    size = row.size
    return f"{shown(size.old or 0)} → {shown(size.new or 0)} ({signed(size.growth)})"


def _formats(text: str) -> str:
    """`embed q8_0, linear q4_1, linear q8_0` as `q4_1 and q8_0`: the linears' first, they are the most."""
    pairs = [part.partition(" ")[::2] for part in text.split(", ")]
    first = [form for op, form in pairs if op == "linear"]
    return " and ".join(dict.fromkeys([*first, *(form for _, form in pairs)]))


def _fallbacks(found: Difference) -> Iterator[Sentence]:
    for row in found.fallbacks:
        yield Sentence(f"New fallback: {row.name}." if row.new else f"No fallback any more: {row.name}.")


def _modes(found: Difference) -> Iterator[Sentence]:
    for row in found.modes:
        yield Sentence(f"Precision of {row.name}: sums pass through {row.new} instead of {row.old}.")


def _plugins(found: Difference) -> Iterator[Sentence]:
    for row in found.plugins:
        size = _by(found, row.name)
        if row.old and row.new:
            yield Sentence(f"Plugin {row.name} {row.old} → {row.new}{size}.", frozenset([row.name]))
        elif row.new:
            yield Sentence(f"New plugin {row.name} {row.new}{size}.", frozenset([row.name]))
        else:
            yield Sentence(f"Plugin {row.name} {row.old} is gone{size}.", frozenset([row.name]))


def _artifacts(found: Difference) -> Iterator[Sentence]:
    weights = {side.weights.artifact for side in (found.old, found.new)} if _source(found) else set()
    parts = {item.name: item.part for side in (found.old, found.new) for item in side.artifacts}
    for part, title in _PARTS.items():
        rows = [row for row in found.artifacts if parts[row.name] == part and row.name not in weights]
        if rows:
            names = frozenset(row.name for row in rows)
            yield Sentence(f"{title}: {_listed([_versions(row) + _by(found, row.name) for row in rows])}.", names)


def _versions(row: Change) -> str:
    if row.old and row.new:
        return f"{row.name} {row.old} → {row.new}"
    return f"{row.name} {row.new} is new" if row.new else f"{row.name} {row.old} is gone"


def _permissions(found: Difference) -> Iterator[Sentence]:
    for row in found.permissions:
        plugin, _, what = row.name.partition(": ")
        verb = "listen for connections" if what == "listen" else f"use {what} of the host"
        yield Sentence(f"{plugin} may {'now' if row.new else 'no longer'} {verb}.")


def _licences(found: Difference) -> Iterator[Sentence]:
    for row in found.licences:
        yield Sentence(f"Licence of {row.name}: {row.old} → {row.new}.")
    fresh = [f"{name} ({found.new.licences.get(name, 'NOASSERTION')})" for name in found.new_components]
    if fresh:
        yield Sentence(f"New in the image: {_listed(fresh)}.")


def _settings(found: Difference) -> Iterator[Sentence]:
    rows = [row for row in found.settings if row.name.startswith(_SECTIONS)]
    if rows:
        yield Sentence(f"Settings: {_listed([f'{row.name} {row.old} → {row.new}' for row in rows])}.")


def _memory(found: Difference) -> Iterator[Sentence]:
    changed = {row.name: row for row in found.memory}
    total = changed.pop("total", None)
    changed.pop("limit", None)
    if total:
        parts = [f"{name} {'+' if row.growth > 0 else ''}{binary(row.growth)}" for name, row in changed.items()]
        size = f"{mib(total.old or 0)} → {mib(total.new or 0)} of {mib(found.new.budget.limit)}"
        yield Sentence(f"Memory when it runs: {size} ({', '.join(parts)}).")


def _rest(found: Difference, told: frozenset[str]) -> Iterator[Sentence]:
    """Components that no sentence has accounted for."""
    rows = [row for row in (found.image.components if found.image else ()) if row.name not in told]
    grown = [f"{row.name} {signed(row.size.growth)}" for row in rows if row.size.growth]
    if grown:
        yield Sentence(f"Besides: {_listed(grown)}.")
    same = [row.name for row in rows if not row.size.growth]
    if same:
        yield Sentence(f"Of the same size, with other bytes: {_listed(same)}.")


def _more(growth: int) -> str:
    return f"{shown(abs(growth))} {'more' if growth > 0 else 'less'}"


def _listed(parts: Iterable[str]) -> str:
    names = list(parts)
    rest = len(names) - _MOST
    return ", ".join(names) if rest <= 1 else f"{', '.join(names[:_MOST])} and {rest} more"
