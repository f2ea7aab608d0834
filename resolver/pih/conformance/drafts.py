"""Small plans made by hand, each with a symbol and constants for every call, as lowering would bind them."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pih.conformance.formats import Made, made
from pih.conformance.steps import LIMITS, PAGE_SIZE, PAGES
from pih_runtime.plan import DTYPE_BYTES, Buffer, Cache, Call, Operand, Plan, Weight
from pih_steps.lower import bounds

Entry = Mapping[str, Any]  # a [[report.kernel]] table
_ALIGNMENT = 64


class UnknownError(Exception):
    """The suite cannot make this case: a private format, a constant that it does not know, an op that is missing."""


@dataclass(slots=True)
class Draft:
    """A plan in the making. bindings: what a pack for it must hold, as a lock spells it."""

    report: Mapping[str, Any]
    isa: str
    reference: bool = False  # run the case's own op through its scalar reference
    buffers: list[Buffer] = field(default_factory=list)
    caches: list[Cache] = field(default_factory=list)
    weights: list[Weight] = field(default_factory=list)
    stored: dict[str, Made] = field(default_factory=dict)
    calls: list[Call] = field(default_factory=list)
    bindings: dict[str, dict[str, Any]] = field(default_factory=dict)

    def buffer(self, columns: int, rows: str = "T", dtype: str = "f32") -> Operand:
        """A buffer of its own, as one view."""
        last = self.buffers[-1] if self.buffers else None
        offset = last.offset + LIMITS.tokens * last.row_bytes if last else 0
        row_bytes = -(-columns * DTYPE_BYTES[dtype] // _ALIGNMENT) * _ALIGNMENT if dtype == "f32" else columns
        name = f"b{len(self.buffers)}"
        self.buffers.append(Buffer(name, rows, columns, dtype, row_bytes, -(-offset // _ALIGNMENT) * _ALIGNMENT))
        return Operand(buffer=name, columns=columns)

    def weight(self, shape: tuple[int, ...], entry: Entry, *, edges: bool = True, factor: float = 1.0) -> Operand:
        """Made-up weights in the form that a kernel reads."""
        rows, columns = (1, *shape)[-2:]
        seed = len(self.weights) + 1
        found = made(rows, columns, entry["weight"], entry["layout"], seed, edges and rows > 1, factor)
        if found is None:
            raise UnknownError(f"weights of {entry['weight']} {entry['layout']} in the shape {list(shape)}")
        name = f"w{len(self.weights)}"
        self.weights.append(Weight(name, shape, entry["weight"], entry["layout"], len(found.data)))
        self.stored[name] = found
        return Operand(weight=name)

    def cache(self, kv_heads: int, head_dim: int, dtype: str) -> Operand:
        """The second of two layers, so that a layer's place counts."""
        self.caches.append(Cache("kv", 2, kv_heads, head_dim, PAGE_SIZE, PAGES, dtype))
        return Operand(cache="kv", layer=1)

    def call(self, entry: Entry, operands: tuple[Operand, ...], **attrs: Any) -> None:
        """A call bound to this kernel, or to its reference."""
        template = entry["reference"] if self.reference and entry.get("reference") else entry["template"]
        if not template:
            raise UnknownError(f"{entry['op']} has a scalar reference alone")
        known = self._constants(entry["op"], operands, attrs)
        try:
            constants = {name: known[name] for name in entry["constants"]}
        except KeyError as missing:
            raise UnknownError(f"{entry['op']}: the constant {missing}") from missing
        multiples = entry.get("reference_multiple" if template != entry["template"] else "multiple", {})
        if any(constants.get(name, 0) % multiple for name, multiple in multiples.items()):
            raise UnknownError(
                f"{entry['op']}: constants {constants} for a kernel that asks for multiples of {multiples}"
            )
        if template == entry["template"] and (beyond := bounds.past(known, entry.get("most", {}))):
            raise UnknownError(
                f"{entry['op']}: {beyond[0].term} is {beyond[0].is_}, for a kernel that takes at most {beyond[0].most}"
            )
        symbol = "_".join([template, *(f"{name}{value}" for name, value in constants.items())])
        self.bindings[symbol] = {
            "template": template, "source": entry["source"], "constants": constants, "symbol": symbol
        }  # fmt: skip
        self.calls.append(Call(entry["op"], symbol, operands, attrs))

    def kernel(self, op: str, form: str | None = None) -> Entry:
        """The pack's most preferred kernel for an op, and a weight format."""
        entries: tuple[Entry, ...] = tuple(self.report.get("kernel", ()))
        for entry in entries:
            if entry["op"] == op and entry["template"] and self.isa in entry["isa"] and form in (None, entry["weight"]):
                return entry
        raise UnknownError(f"{op} {form or ''}".rstrip() + f" for {self.isa}, which this case needs beside its own op")

    def embed(self, columns: int, rows: int, *, edges: bool = True, factor: float = 1.0) -> Operand:
        """A view whose rows a token's id chooses."""
        entry = self.kernel("embed", "f32")
        y = self.buffer(columns)
        self.call_helper(entry, (self.weight((rows, columns), entry, edges=edges, factor=factor), y))
        return y

    def call_helper(self, entry: Entry, operands: tuple[Operand, ...], **attrs: Any) -> None:
        """A call that is not what the case is about: always by the fast kernel."""
        own, self.reference = self.reference, False
        try:
            self.call(entry, operands, **attrs)
        finally:
            self.reference = own

    def finish(self, view: Operand, about: str) -> Plan:
        """The plan whose logits are this view's wanted rows. about: the case's op."""
        wanted = self.buffer(view.columns, rows="R")
        for op, operands in (("gather", (view, wanted)), ("sample", (wanted,))):
            (self.call if op == about else self.call_helper)(self.kernel(op), operands)
        last = self.buffers[-1]
        arena = last.offset + LIMITS.tokens * last.row_bytes
        parts = (tuple(self.buffers), tuple(self.caches), tuple(self.weights), tuple(self.calls))
        return Plan("conformance", LIMITS, view.columns, arena, *parts)

    def _constants(self, op: str, operands: tuple[Operand, ...], attrs: Mapping[str, Any]) -> dict[str, int]:
        """Every constant that follows from a call, by the name that reports use."""
        views = [operand for operand in operands if operand.buffer]
        shapes = [weight.shape for weight in self.weights if weight.name in {item.weight for item in operands}]
        found: dict[str, int] = {name: int(attrs[name]) for name in ("head_dim", "accumulate") if name in attrs}
        if views:
            found |= {"columns": views[0].columns, "v": views[0].columns}
        if shapes and len(shapes[0]) == 2:
            found |= {"n": shapes[0][0], "k": shapes[0][1]}
        if op == "rms_norm":
            found["groups"] = views[0].columns // shapes[0][0]
        if "pairs" in attrs:
            found["pairs"] = {"half": 0, "adjacent": 1}[attrs["pairs"]]
        if any(operand.cache for operand in operands):
            cache = self.caches[0]
            found |= {"kv_heads": cache.kv_heads, "page_size": cache.page_size, "kv": int(cache.dtype == "bf16")}
            found["heads"] = views[0].columns // cache.head_dim
        found |= {f"{name}_bits": _bits(attrs[name]) for name in ("eps", "scale") if name in attrs}
        return found


def _bits(value: float) -> int:
    return int(struct.unpack("<I", struct.pack("<f", value))[0])
