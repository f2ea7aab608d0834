"""The code for a device in a bundle, entry by entry: read from the cubin itself and held against the plan."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import attrs

from pih.inspect.bundle import Contents
from pih.reading import json_of
from pih_runtime import plan as plans
from pih_runtime.errors import SealError
from pih_runtime.ops import COLLECTIVES
from pih_steps import cubin_elf

CUBIN = "pih/kernels/pack.cubin"
TABLE = "pih/kernels/pack.json"
PLAN = "pih/plan.json"
MEMBERS = (CUBIN, TABLE, PLAN)
_FIX = "build the bundle again"


@attrs.frozen
class Entry:
    """A kernel entry. op, symbol: what calls it, '' where nothing does; calls: how many calls of a step may launch it.

    code, shared, frame: bytes; frame is the local memory of a thread, where spilled registers go.
    """

    name: str
    op: str
    symbol: str
    calls: int
    code: int
    registers: int
    shared: int
    frame: int


@attrs.frozen
class DeviceCode:
    """arch: the one processor that it is for. size: of the cubin, in bytes; code: of its entries' instructions.

    uncalled: entries that no call of the plan launches. missing: kernels that the plan calls and that have no entry.
    """

    arch: str
    size: int
    code: int
    entries: tuple[Entry, ...]
    uncalled: tuple[str, ...]
    missing: tuple[str, ...]

    @property
    def proof(self) -> str:
        """Whether entries and calls go together, in words."""
        wrong = [f"{name} is called by nothing" for name in self.uncalled]
        wrong += [f"{name} is called, and has no entry" for name in self.missing]
        return "; ".join(wrong) or "the plan calls every entry, and every call has its entry"


def of_bundle(contents: Contents, read: Callable[[str], bytes], where: str) -> DeviceCode | None:
    """What the bundle's cubin holds; None where it has none. read: a file of the image, by its path without '/'.

    Raises SealError where a file is not the one that is listed, or cannot be understood.
    """
    digests = {file.path.removeprefix("/"): file.digest for file in contents.files}
    if CUBIN not in digests:
        return None
    found = {name: _checked(read(name), digests.get(name, ""), name, where) for name in MEMBERS}
    cubin = cubin_elf.read(found[CUBIN], f"{where}: /{CUBIN}")
    plan = plans.from_json(found[PLAN], f"{where}: /{PLAN}")
    symbols = _symbols(found[TABLE], f"{where}: /{TABLE}")
    calls: dict[str, int] = {}
    for call in plan.calls:
        if call.op in COLLECTIVES:  # the transport's
            continue
        calls[call.symbol] = calls.get(call.symbol, 0) + 1
    ops = {call.symbol: call.op for call in plan.calls}
    known = {entry.name for entry in cubin.entries}
    launched = {name: symbol for symbol, names in symbols.items() if symbol in calls for name in names}
    entries = []
    for entry in cubin.entries:
        symbol = launched.get(entry.name, "")
        row = (entry.code, entry.registers, entry.shared, entry.frame)
        entries.append(Entry(entry.name, ops.get(symbol, ""), symbol, calls.get(symbol, 0), *row))
    return DeviceCode(
        arch=cubin.sm,
        size=len(found[CUBIN]),
        code=sum(entry.code for entry in cubin.entries),
        entries=tuple(entries),
        uncalled=tuple(sorted(known - launched.keys())),
        missing=tuple(sorted(symbol for symbol in calls if not known & set(symbols.get(symbol, ())))),
    )


def as_json(code: DeviceCode | None) -> dict[str, Any] | None:
    """For scripts and the page."""
    return {**attrs.asdict(code), "proof": code.proof} if code else None


def _checked(data: bytes, digest: str, name: str, where: str) -> bytes:
    if digest != "sha256:" + hashlib.sha256(data).hexdigest():
        raise SealError(f"/{name} is not the file that the bundle lists", where=where, fix=_FIX)
    return data


def _symbols(table: bytes, where: str) -> dict[str, tuple[str, ...]]:
    """The entries of each kernel, as the worker reads them."""
    try:
        rows = json_of(table)["symbols"]
        return {str(symbol): tuple(str(item["entry"]) for item in items) for symbol, items in rows.items()}
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as problem:
        raise SealError(f"not a table of kernels: {problem!r}", where=where, fix=_FIX) from problem
