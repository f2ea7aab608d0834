"""The plan: a model lowered for one deployment, op calls on planned buffers.

Data and JSON in and out, checked on reading (a plan is untrusted input to a backend).
Written by `pih_steps.lower`, read by the worker's backend.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pih_runtime.errors import WorkerError
from pih_runtime.numbers import whole
from pih_runtime.ops import COLLECTIVES, OPS

SCHEMA = 1
NAME = "plan.json"
DTYPE_BYTES = {"f32": 4, "bf16": 2, "f16": 2, "i32": 4, "u8": 1}


@dataclass(frozen=True, slots=True)
class Limits:
    """Largest step: tokens T, seqs S (and wanted rows R <= S); context: positions of one sequence."""

    tokens: int
    seqs: int
    context: int


@dataclass(frozen=True, slots=True)
class Buffer:
    """A matrix in the arena: rows 'T' or 'R' (the limit's count), `columns` values of dtype a row.

    `row_bytes` is the distance between rows; a pack's private activation format has dtype 'u8'
    and columns = row_bytes. `offset` from the arena's start, 64-byte aligned.
    """

    name: str
    rows: str
    columns: int
    dtype: str
    row_bytes: int
    offset: int


@dataclass(frozen=True, slots=True)
class Cache:
    """A cache group: [layer][K,V][page][kv_head][page_size][head_dim] of dtype, one allocation."""

    name: str
    layers: int
    kv_heads: int
    head_dim: int
    page_size: int
    pages: int
    dtype: str

    @property
    def nbytes(self) -> int:
        """Bytes of the allocation."""
        rows = self.layers * 2 * self.pages * self.kv_heads * self.page_size
        return rows * self.head_dim * DTYPE_BYTES[self.dtype]


@dataclass(frozen=True, slots=True)
class Weight:
    """A tensor of the packed weights file, by name; logical shape, storage format and layout.

    format: f32, bf16, q4_1, q8_0. layout: 'rows' (as the format stores it, row by row) or
    a pack's own, e.g. 'tile16'. nbytes is the length in the file. sources: the checkpoint's
    tensors whose rows it stacks; a constant that the lowering computed has its values instead.
    split: '' for what every rank has whole; where ranks have shares, 'rows' or 'columns': rank r's share is the r-th of
    as many equal parts of each source, shape and nbytes are those of one share.
    """

    name: str
    shape: tuple[int, ...]
    format: str
    layout: str
    nbytes: int
    sources: tuple[str, ...] = ()
    values: tuple[float, ...] = ()
    split: str = ""

    def stored(self, rank: int) -> str:
        """Its name in the packed file, which holds the shares of all ranks: 'NAME@RANK' for a share."""
        return f"{self.name}@{rank}" if self.split else self.name


@dataclass(frozen=True, slots=True)
class Operand:
    """Exactly one of buffer (with a column range), weight, cache (with a layer)."""

    buffer: str = ""
    column: int = 0
    columns: int = 0
    weight: str = ""
    cache: str = ""
    layer: int = 0


@dataclass(frozen=True, slots=True)
class Call:
    """One op call; operands in the op's order, inputs then outputs. `symbol` is bound by the lock.

    A call of a fused kernel does several ops in one: `op` joins their names by '+', the operands are those of them
    that the kernel takes, in its own order, and `attrs` is empty: the symbol spells them.
    """

    op: str
    symbol: str
    operands: tuple[Operand, ...]
    attrs: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Plan:
    """Calls in their order, and all they touch. arena_bytes: one allocation that holds every buffer.

    ranks: it is the plan of each of so many, which differ by nothing but their shares of the weights.
    """

    model: str
    limits: Limits
    vocab: int
    arena_bytes: int
    buffers: tuple[Buffer, ...]
    caches: tuple[Cache, ...]
    weights: tuple[Weight, ...]
    calls: tuple[Call, ...]
    ranks: int = 1

    @property
    def cache_bytes(self) -> int:
        """Bytes of all cache groups."""
        return sum(cache.nbytes for cache in self.caches)

    @property
    def weight_bytes(self) -> int:
        """Bytes of the weights of one rank, as they lie in the packed file."""
        return sum(weight.nbytes for weight in self.weights)

    @property
    def stored(self) -> dict[str, int]:
        """Name and bytes of each tensor of the packed file."""
        return {weight.stored(rank): weight.nbytes for weight in self.weights for rank in range(self.ranks)}


def _compact(value: dict[str, Any]) -> dict[str, Any]:
    """Leave out an operand's empty fields: plans are read by people too."""
    return {key: item for key, item in value.items() if item not in ("", 0)}


def _dump(item: Any) -> str:
    return json.dumps(item, sort_keys=True)


def to_json(plan: Plan) -> str:
    """One line a buffer, weight and call; keys sorted: the same plan gives the same bytes."""
    data = asdict(plan)
    for call in data["calls"]:
        call["operands"] = [_compact(operand) for operand in call["operands"]]
    if plan.ranks == 1:
        del data["ranks"]
    for weight in data["weights"]:
        if not weight["split"]:
            del weight["split"]
    data["schema"] = SCHEMA
    parts = []
    for key in sorted(data):
        item = data[key]
        if isinstance(item, (list, tuple)):
            body = ",\n    ".join(_dump(entry) for entry in item)
            parts.append(f'  "{key}": [\n    {body}\n  ]' if item else f'  "{key}": []')
        else:
            parts.append(f'  "{key}": {_dump(item)}')
    return "{\n" + ",\n".join(parts) + "\n}\n"


def from_json(text: str | bytes, where: str = NAME) -> Plan:
    """Parse and check a plan; raises WorkerError (exit 9) where it does not hold together."""
    try:
        data = json.loads(text if isinstance(text, str) else text.decode(), parse_int=whole)
        if data["schema"] != SCHEMA:
            raise WorkerError(f"plan schema {data['schema']} is not {SCHEMA}", where=where)
        plan = Plan(
            model=data["model"],
            limits=Limits(**data["limits"]),
            vocab=data["vocab"],
            arena_bytes=data["arena_bytes"],
            buffers=tuple(Buffer(**item) for item in data["buffers"]),
            caches=tuple(Cache(**item) for item in data["caches"]),
            weights=tuple(_weight(item) for item in data["weights"]),
            calls=tuple(
                Call(item["op"], item["symbol"], tuple(Operand(**o) for o in item["operands"]), item["attrs"])
                for item in data["calls"]
            ),
            ranks=data.get("ranks", 1),
        )
    except (KeyError, TypeError, ValueError, RecursionError) as problem:
        raise WorkerError(f"not a plan: {problem!r}", where=where, fix="build the bundle again") from problem
    check(plan, where)
    return plan


def read(root: Path) -> Plan:
    """The plan of the bundle whose /pih is `root`; raises WorkerError (exit 9) where it is missing or none."""
    path = root / NAME
    try:
        text = path.read_bytes()
    except OSError as problem:
        raise WorkerError(
            f"cannot read the plan: {problem.strerror}", where=str(path), fix="build the bundle again"
        ) from problem
    return from_json(text, str(path))


def _weight(item: dict[str, Any]) -> Weight:
    lists = {key: tuple(item.get(key, ())) for key in ("shape", "sources", "values")}
    return Weight(**{**item, **lists})


def check(plan: Plan, where: str = "plan") -> None:
    """Every call names a known op with its operand count, every operand exists and lies within its buffer."""
    rows = {"T": plan.limits.tokens, "R": plan.limits.seqs}
    buffers = {buffer.name: buffer for buffer in plan.buffers}
    caches = {cache.name: cache for cache in plan.caches}
    weights = {weight.name: weight for weight in plan.weights}

    def fail(what: str) -> WorkerError:
        return WorkerError(what, where=where, fix="build the bundle again")

    for buffer in plan.buffers:
        if buffer.rows not in rows or buffer.dtype not in DTYPE_BYTES or buffer.columns <= 0:
            raise fail(f"buffer {buffer.name}: bad rows, dtype or columns")
        if buffer.row_bytes < buffer.columns * DTYPE_BYTES[buffer.dtype] or buffer.offset < 0 or buffer.offset % 64:
            raise fail(f"buffer {buffer.name}: bad row_bytes or offset")
        if buffer.offset + rows[buffer.rows] * buffer.row_bytes > plan.arena_bytes:
            raise fail(f"buffer {buffer.name} ends past the arena of {plan.arena_bytes} bytes")
    if type(plan.ranks) is not int or plan.ranks < 1:
        raise fail(f"{plan.ranks!r} ranks")
    for weight in plan.weights:
        if weight.split not in ("", "rows", "columns") or (weight.split and plan.ranks == 1):
            raise fail(f"weight {weight.name}: split by {weight.split!r} among {plan.ranks} ranks")
    for index, call in enumerate(plan.calls):
        if call.op in COLLECTIVES and plan.ranks == 1:
            raise fail(f"call {index}: {call.op} of one rank")
        ops = [OPS.get(name) for name in call.op.split("+")]
        if None in ops:
            raise fail(f"call {index}: unknown op {call.op!r}")
        takes = sum(len(op.inputs) + len(op.outputs) for op in ops if op is not None)
        if len(call.operands) > takes or (len(ops) == 1 and len(call.operands) < takes):
            raise fail(f"call {index}: {call.op} takes {takes} operands")
        for operand in call.operands:
            named = [bool(operand.buffer), bool(operand.weight), bool(operand.cache)]
            if sum(named) != 1:
                raise fail(f"call {index}: an operand is one of buffer, weight, cache")
            if operand.buffer:
                home = buffers.get(operand.buffer)
                if home is None or operand.column < 0 or operand.columns <= 0:
                    raise fail(f"call {index}: bad view of buffer {operand.buffer!r}")
                if operand.column + operand.columns > home.columns:
                    raise fail(f"call {index}: view of {operand.buffer!r} ends past its {home.columns} columns")
            elif operand.weight and operand.weight not in weights:
                raise fail(f"call {index}: unknown weight {operand.weight!r}")
            elif operand.cache and not (operand.cache in caches and 0 <= operand.layer < caches[operand.cache].layers):
                raise fail(f"call {index}: no layer {operand.layer} of cache {operand.cache!r}")
