"""The code for a device in a bundle, entry by entry: read from the cubin, held against the plan and the target."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import attrs

from pih.inspect.bundle import Contents
from pih.lock import Target
from pih.reading import json_of
from pih_runtime import plan as plans
from pih_runtime.errors import SealError
from pih_runtime.ops import COLLECTIVES
from pih_steps import cubin, cubin_elf
from pih_steps.cubin_elf import Cubin

CUBIN = "pih/kernels/pack.cubin"
TABLE = "pih/kernels/pack.json"
PLAN = "pih/plan.json"
MEMBERS = (CUBIN, TABLE, PLAN)
_FIX = "build the bundle again"
_Rows = dict[str, list[dict[str, Any]]]  # of pack.json: each kernel's entries


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
    amiss: where the cubin is not for the target's devices, and what the worker's table of kernels says other than the
    cubin does, in words.
    """

    arch: str
    size: int
    code: int
    entries: tuple[Entry, ...]
    uncalled: tuple[str, ...]
    missing: tuple[str, ...]
    amiss: tuple[str, ...]

    @property
    def proof(self) -> str:
        """Whether entries and calls go together, in words."""
        wrong = [f"{name} is called by nothing" for name in self.uncalled]
        wrong += [f"{name} is called, and has no entry" for name in self.missing]
        wrong += self.amiss
        return "; ".join(wrong) or "the plan calls every entry, and every call has its entry"


def of_bundle(contents: Contents, target: Target, read: Callable[[str], bytes], where: str) -> DeviceCode | None:
    """What the bundle's cubin holds; None where it has none.

    target: the lock's. read: a file of the image, by its path without '/'.

    Raises SealError where a file is not the one that is listed, or cannot be understood.
    """
    digests = {file.path.removeprefix("/"): file.digest for file in contents.files}
    if CUBIN not in digests:
        return None
    found = {name: _checked(read(name), digests.get(name, ""), name, where) for name in MEMBERS}
    code = cubin_elf.read(found[CUBIN], f"{where}: /{CUBIN}")
    plan = plans.from_json(found[PLAN], f"{where}: /{PLAN}")
    sm, rows = _table(found[TABLE], f"{where}: /{TABLE}")
    symbols = {symbol: tuple(str(row["entry"]) for row in listed) for symbol, listed in rows.items()}
    calls: dict[str, int] = {}
    for call in plan.calls:
        if call.op in COLLECTIVES:  # the transport's
            continue
        calls[call.symbol] = calls.get(call.symbol, 0) + 1
    ops = {call.symbol: call.op for call in plan.calls}
    known = {entry.name for entry in code.entries}
    launched = {name: symbol for symbol, names in symbols.items() if symbol in calls for name in names}
    entries = []
    for entry in code.entries:
        symbol = launched.get(entry.name, "")
        row = (entry.code, entry.registers, entry.shared, entry.frame)
        entries.append(Entry(entry.name, ops.get(symbol, ""), symbol, calls.get(symbol, 0), *row))
    return DeviceCode(
        arch=code.sm,
        size=len(found[CUBIN]),
        code=sum(entry.code for entry in code.entries),
        entries=tuple(entries),
        uncalled=tuple(sorted(known - launched.keys())),
        missing=tuple(sorted(symbol for symbol in calls if not known & set(symbols.get(symbol, ())))),
        amiss=(*_misplaced(target, sm, code), *_amiss(rows, code)),
    )


def _misplaced(target: Target, sm: str, code: Cubin) -> Iterator[str]:
    """Other processors than the cubin's. sm: of the table of kernels."""
    wanted = target.device.sm if target.device else ""
    if code.sm != wanted:
        yield f"the cubin is for {code.sm}, and the lock's device.sm is {wanted or 'none'}"
    if code.sm != sm:
        yield f"the table of kernels is for {sm}"


def _amiss(rows: _Rows, code: Cubin) -> Iterator[str]:
    """What each entry's name and its own launch descriptor do not bear out."""
    known = {entry.name: entry for entry in code.entries}
    for symbol, listed in rows.items():
        for row in listed:
            name = str(row["entry"])
            if name not in known:
                yield f"{name} is listed, and is not in the cubin"
            elif cubin.owner(name, rows) != symbol:
                yield f"{name} is listed as one of {symbol}, which it is not"
            elif not known[name].launch or row != cubin.row(known[name]):
                yield f"{name} is not launched as it says itself"
        most = [row.get("most_rows") for row in listed]
        if any(not (isinstance(a, int) and isinstance(b, int) and a < b) for a, b in itertools.pairwise(most)):
            yield f"the entries of {symbol} are not in the order of their rows"


def as_json(code: DeviceCode | None) -> dict[str, Any] | None:
    """For scripts and the page."""
    return {**attrs.asdict(code), "proof": code.proof} if code else None


def _checked(data: bytes, digest: str, name: str, where: str) -> bytes:
    if digest != "sha256:" + hashlib.sha256(data).hexdigest():
        raise SealError(f"/{name} is not the file that the bundle lists", where=where, fix=_FIX)
    return data


def _table(text: bytes, where: str) -> tuple[str, _Rows]:
    """The compute capability, and the rows of each kernel's entries, as the worker reads them."""
    try:
        table = json_of(text)
        rows = {
            str(symbol): [{**row, "entry": str(row["entry"])} for row in listed]
            for symbol, listed in table["symbols"].items()
        }
        return str(table["sm"]), rows
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as problem:
        raise SealError(f"not a table of kernels: {problem!r}", where=where, fix=_FIX) from problem
