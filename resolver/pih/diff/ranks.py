"""More or fewer devices as one sentence: what joins the ranks, and what follows for each of them.

Nobody reviews shares of one model as so many other kernels; what has another cause keeps its own sentence.
"""

from __future__ import annotations

from collections.abc import Iterator

import attrs

from pih.diff.amounts import signed
from pih.diff.difference import Change, Difference
from pih.diff.sentence import Sentence, component, listed, setting
from pih.inspect.overview import mib

_COUNT, _SAME = "target.device.count", ("target.device.sm", "target.isa")


def told(found: Difference) -> tuple[tuple[Sentence, ...], Difference]:
    """The sentence, if the number of devices changed, and what is left to say then."""
    count = setting(found, _COUNT)
    if count is None or not (count.old and count.new) or any(setting(found, name) for name in _SAME):
        return (), found
    joins = _joins(found)
    shared = not any(row.name == "formats" for row in found.weights)
    alone = len(found.settings) == 1
    parts = [*_made_of(found, joins), *_share(found, kernels=shared, memory=alone)]
    names = joins | {side_pack for side_pack in _packs(found) if shared} | ({"pih"} if alone else set())
    text = f"Ranks {count.old} → {count.new}, one for each device: {'; '.join(parts)}."
    left = attrs.evolve(
        found,
        settings=tuple(row for row in found.settings if row.name != _COUNT),
        plugins=tuple(row for row in found.plugins if row.name not in joins),
        artifacts=tuple(row for row in found.artifacts if row.name not in joins),
        permissions=tuple(row for row in found.permissions if row.name.partition(": ")[0] not in joins),
        new_components=tuple(name for name in found.new_components if name not in joins),
        ops=() if shared else found.ops,
        modes=tuple(row for row in found.modes if row.name != "add"),
        memory=() if alone else found.memory,
    )
    return (Sentence(text, frozenset(names)),), left


def _joins(found: Difference) -> set[str]:
    """Transports that came or went, and the wheels that did so with them."""
    changed = {row.name for row in found.plugins if not (row.old and row.new)}
    transports = {item.id for side in (found.old, found.new) for item in side.plugins if item.kind == "transport"}
    parts = {item.name: item.part for side in (found.old, found.new) for item in side.artifacts}
    wheels = {row.name for row in found.artifacts if parts[row.name] == "wheels" and not (row.old and row.new)}
    joins = changed & transports
    return joins | wheels if joins else set()


def _made_of(found: Difference, joins: set[str]) -> Iterator[str]:
    """`transport/nccl 0.1.0 and nvidia-nccl-cu13 2.31.2 are new (+234 MB; licences A, B; may use C)`."""
    rows = [row for row in (*found.plugins, *found.artifacts) if row.name in joins]
    if not rows:
        return
    sizes = [row.size.growth for name in joins if (row := component(found, name))]
    side = found.new if rows[0].new else found.old
    licences = dict.fromkeys(side.licences.get(row.name, "NOASSERTION") for row in rows)
    may = [row.name.partition(": ")[2] for row in found.permissions if row.name.partition(": ")[0] in joins]
    about = [
        *([signed(sum(sizes))] if sizes else []),
        f"licences {listed(licences)}",
        *([f"may use {listed(may)}"] if may else []),
    ]
    yield f"{' and '.join(map(_version, rows))} {_became(rows)} ({'; '.join(about)})"


def _version(row: Change) -> str:
    return f"{row.name} {row.new or row.old}"


def _became(rows: list[Change]) -> str:
    verb = "is" if len(rows) == 1 else "are"
    return f"{verb} new" if rows[0].new else f"{verb} gone"


def _share(found: Difference, *, kernels: bool, memory: bool) -> Iterator[str]:
    """What each rank has of the model."""
    words = []
    if kernels and found.ops:
        grown = sum(row.size.growth for name in _packs(found) if (row := component(found, name)))
        size = f" ({signed(grown)} with the plan)" if grown else ""
        words.append(f"other kernels for {len(found.ops)} ops{size}")
    if memory:
        for name, of in (("device", "a device"), ("total", "the host")):
            sums = next((row for row in found.memory if row.name == name), None)
            if sums:
                words.append(f"memory of {of} {mib(sums.old or 0)} → {mib(sums.new or 0)}")
    if words:
        yield f"each rank has its share of the model: {', '.join(words)}"


def _packs(found: Difference) -> set[str]:
    """The components that a plan and its kernels are of."""
    return {item.id for side in (found.old, found.new) for item in side.plugins if item.kind in ("kernels", "model")}
