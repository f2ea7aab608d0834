"""What differs in what runs, in sentences: target, weights, kernels, precision, settings, memory."""

from __future__ import annotations

from collections.abc import Iterator

from pih.diff.amounts import binary, shown, signed
from pih.diff.difference import Change, Component, Difference
from pih.diff.facts import Facts
from pih.diff.sentence import Sentence, component, listed, more, setting
from pih.inspect.overview import mib

_SECTIONS = ("limits.", "service.")


def sentences(found: Difference) -> Iterator[Sentence]:
    """The weightiest first."""
    for said in (_target, _weights, _kernels, _fallbacks, _modes, _settings, _memory):
        yield from said(found)


def _target(found: Difference) -> Iterator[Sentence]:
    processor = _processor(found)
    if processor:
        size, pack = _kernels_size(found)
        yield Sentence(f"Target {processor.old} → {processor.new}: {_compiled(found)}{size}.", pack)
    for row in found.settings:
        if row.name.startswith("target.") and row != processor:
            key = row.name.removeprefix("target.").removesuffix("_bytes")
            words = [
                mib(int(text)) if text and row.name.endswith("_bytes") else text or "none"
                for text in (row.old, row.new)
            ]
            yield Sentence(f"Target {key.replace('.', ' ')}: {' → '.join(words)}.")


def _processor(found: Difference) -> Change | None:
    """The change of what kernels are compiled for, where both sides have it."""
    rows = (setting(found, name) for name in ("target.device.sm", "target.isa"))
    return next((row for row in rows if row and row.old and row.new), None)


def _compiled(found: Difference) -> str:
    count = len({item.op for item in found.new.kernels})
    if not found.ops:
        return f"the same {len(found.new.kernels)} kernels for {count} ops, compiled for it"
    return f"{_other_kernels(found)}; all are compiled for it"


def _other_kernels(found: Difference) -> str:
    """`3 of 12 ops have other kernels (embed, linear, no quantize any more)`."""
    ops = [{item.op for item in side.kernels} for side in (found.old, found.new)]
    named = [
        f"{op} is new" if op not in ops[0] else f"no {op} any more" if op not in ops[1] else op
        for op in sorted(found.ops)
    ]
    verb = "has" if len(found.ops) == 1 else "have"
    return f"{len(found.ops)} of {len(ops[0] | ops[1])} ops {verb} other kernels ({listed(named)})"


def _kernels_size(found: Difference) -> tuple[str, frozenset[str]]:
    """`; -60.0 kB` where the kernel pack's size changed, and what that accounts for."""
    pack = _pack(found.new)
    row = component(found, pack)
    return f"; {signed(row.size.growth)}" if row and row.size.growth else "", frozenset([pack])


def _pack(side: Facts) -> str:
    """The plugin that the kernels are of."""
    return next((item.id for item in side.plugins if item.kind == "kernels"), "")


def _kernels(found: Difference) -> Iterator[Sentence]:
    """Where neither another target nor other weights have said it."""
    if found.ops and not _processor(found) and not _format(found):
        size, pack = _kernels_size(found)
        yield Sentence(f"Kernels: {_other_kernels(found)}{size}.", pack)


def _format(found: Difference) -> Change | None:
    return next((row for row in found.weights if row.name == "formats"), None)


def _weights(found: Difference) -> Iterator[Sentence]:
    changed = {row.name: row for row in found.weights}
    size, moved, formats = component(found, "weights"), changed.get("delivery"), changed.get("formats")
    told = frozenset(["weights"])
    if moved:
        where = "out of" if moved.new == "separate" else "into"
        growth = f": {more(size.size.growth)}" if size else ""
        yield Sentence(f"Weights move {where} the image ({moved.old} → {moved.new}){growth}.", told)
    if formats:
        sizes = f", {_size_change(size)}" if size and not moved else ""
        yield Sentence(f"Weights {_formats(formats.old)} → {_formats(formats.new)}{sizes}.", told)
        if found.ops and not _processor(found):
            kernels, pack = _kernels_size(found)
            yield Sentence(f"For these weights {_other_kernels(found)}{kernels}.", pack)
    elif size and not moved:
        what = _size_change(size) if size.size.growth else f"other bytes, still {shown(size.size.new or 0)}"
        yield Sentence(f"Weights: {what}.", told)
    if "pin" in changed:
        pin = changed["pin"]
        yield Sentence(f"The weights are pinned to {pin.new}." if pin.new else "The weights are not pinned any more.")
    if "verify" in changed:
        when = "before it is ready" if changed["verify"].new == "start" else "when it first reads them"
        yield Sentence(f"The worker checks the weights {when}.")
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


def _settings(found: Difference) -> Iterator[Sentence]:
    rows = [row for row in found.settings if row.name.startswith(_SECTIONS)]
    if rows:
        yield Sentence(f"Settings: {listed([f'{row.name} {row.old} → {row.new}' for row in rows])}.")


def _memory(found: Difference) -> Iterator[Sentence]:
    """Of the host, and of each device where there are any; what the sums are made of is told with the first.

    Parts are of host and device together: where both or one of the sides has a device, they stand by themselves.
    """
    changed = {row.name: row for row in found.memory}
    parts = [
        f"{name} {'+' if row.growth > 0 else ''}{binary(row.growth)}"
        for name, row in changed.items()
        if name not in ("total", "limit", "device", "device_limit")
    ]
    device = any(side.memory.get("device") for side in (found.old, found.new))
    together, parts = (parts, []) if device else ([], parts)
    for name, what, limit in (
        ("total", "Memory when it runs", "limit"),
        ("device", "Memory of a device", "device_limit"),
    ):
        row = changed.get(name)
        if row:
            sums = " → ".join(mib(count) if count else "none" for count in (row.old, row.new))
            of = f" of {mib(found.new.memory.get(limit, 0))}" if row.new else ""
            why = f" ({', '.join(parts)})" if parts else ""
            yield Sentence(f"{what}: {sums}{of}{why}.")
            parts = []
    if together:
        yield Sentence(f"Of host and device together: {', '.join(together)}.")
