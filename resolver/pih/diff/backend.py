"""What computes, a processor or a device, as one sentence where that changed: plugins, kernels, and what they may use.

Every op has another kernel then, and every key of the device is new: nobody reviews those one by one.
"""

from __future__ import annotations

from collections.abc import Iterator

import attrs

from pih.diff.amounts import signed
from pih.diff.difference import Change, Difference
from pih.diff.facts import Facts
from pih.diff.sentence import Sentence, component
from pih.inspect.overview import mib

_KINDS = ("backend", "kernels")
_DEVICE = "target.device."


def told(found: Difference) -> tuple[tuple[Sentence, ...], Difference]:
    """The sentence, if the kernels are of another plugin, and what is left to say then."""
    sides = (found.old, found.new)
    if len({_packs(side) for side in sides}) == 1:
        return (), found
    names = {item.id for side in sides for item in side.plugins if item.kind in _KINDS}
    rows = [row for row in found.plugins if row.name in names]
    names = {row.name for row in rows}
    parts = [*_plugins(rows), _share(found, names), *_reach(found, names)]
    text = f"Computes on {_place(found.new)} instead of {_place(found.old)}: {'; '.join(parts)}."
    left = attrs.evolve(
        found,
        settings=tuple(row for row in found.settings if not row.name.startswith(_DEVICE) and row.name != "target.isa"),
        plugins=tuple(row for row in found.plugins if row.name not in names),
        permissions=tuple(row for row in found.permissions if _owner(row) not in names),
        new_components=tuple(name for name in found.new_components if name not in names),
        ops=(),
    )
    return (Sentence(text, frozenset(names)),), left


def _packs(side: Facts) -> frozenset[str]:
    return frozenset(item.id for item in side.plugins if item.kind == "kernels")


def _place(side: Facts) -> str:
    """`1 x sm_89 (23552.0 MiB, driver 580.65.06 or newer, host x86-64-v3)`, or `the processor (x86-64-v3)`."""
    isa = side.settings.get("target.isa", "")
    device = {key.removeprefix(_DEVICE): text for key, text in side.settings.items() if key.startswith(_DEVICE)}
    if not device:
        return f"the processor ({isa})"
    asks = [
        mib(int(device["memory_bytes"])) if device.get("memory_bytes") else "",
        f"driver {device['driver']} or newer" if device.get("driver") else "",
        f"host {isa}",
    ]
    return f"{device.get('count', '1')} x {device.get('sm') or 'device'} ({', '.join(filter(None, asks))})"


def _plugins(rows: list[Change]) -> Iterator[str]:
    """`backend/cuda and kernels/cuda are new`, `backend/cpu is gone`."""
    for became, some in (("new", [row for row in rows if not row.old]), ("gone", [row for row in rows if not row.new])):
        if some:
            yield f"{_and([row.name for row in some])} {'is' if len(some) == 1 else 'are'} {became}"


def _share(found: Difference, names: set[str]) -> str:
    """`kernels of its own for 9 ops (+291 kB in all)`."""
    grown = sum(row.size.growth for name in names if (row := component(found, name)))
    size = f" ({signed(grown)} in all)" if grown else ""
    return f"kernels of its own for {len({item.op for item in found.new.kernels})} ops{size}"


def _reach(found: Difference, names: set[str]) -> Iterator[str]:
    rows = [row for row in found.permissions if _owner(row) in names]
    for verb, some in (
        ("may use", [row for row in rows if row.new]),
        ("may no longer use", [row for row in rows if row.old]),
    ):
        if some:
            yield f"{verb} {_and([row.name.partition(': ')[2] for row in some])} of the host"


def _owner(row: Change) -> str:
    return row.name.partition(": ")[0]


def _and(names: list[str]) -> str:
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))
