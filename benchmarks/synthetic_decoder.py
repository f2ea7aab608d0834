"""A decoder in a true shape with made-up weights: a plan and its bindings, without checkpoint and lowering.

For benchmarks, and for tests of the backend alone.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from pih_runtime.plan import Buffer, Cache, Call, Limits, Operand, Plan, Weight, check

EVERYTHING = "everything"  # a tensor that covers all others
PAGE = 16
ONE_THIRTY_SECOND = 0.03125


@dataclass(frozen=True)
class Shape:
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    vocab: int
    format: str
    head_format: str
    head_norms: bool
    pairs: int


SHAPES = {
    "qwen3-0.6b": Shape(28, 1024, 16, 8, 128, 3072, 151936, "bf16", "bf16", True, 0),
    "smollm2-135m": Shape(30, 576, 9, 3, 64, 1536, 49152, "q4_1", "q8_0", False, 1),
}
BYTES = {
    "bf16": lambda n, k: n * k * 2,
    "q4_1": lambda n, k: n * k // 512 * 320,
    "q8_0": lambda n, k: n * k // 512 * 544,
}
LAYOUT = {"bf16": "pair16", "q4_1": "tile16", "q8_0": "tile16", "f32": "rows"}


class Builder:
    """Collects buffers, weights, calls and the bindings that the calls need."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.arena = 0
        self.buffers: list[Buffer] = []
        self.weights: list[Weight] = []
        self.calls: list[Call] = []
        self.bindings: dict[str, dict] = {}

    def buffer(self, name: str, columns: int, dtype: str = "f32", rows: str = "T") -> Operand:
        row_bytes = (columns * (4 if dtype == "f32" else 1) + 63) // 64 * 64
        self.buffers.append(Buffer(name, rows, columns, dtype, row_bytes, self.arena))
        self.arena += row_bytes * (self.limits.tokens if rows == "T" else self.limits.seqs)
        return Operand(buffer=name, columns=columns)

    def weight(self, name: str, shape: tuple[int, ...], form: str) -> Operand:
        nbytes = shape[0] * 4 if form == "f32" else BYTES[form](*shape)
        self.weights.append(Weight(name, shape, form, LAYOUT[form], nbytes))
        return Operand(weight=name)

    def call(self, op: str, template: str, source: str, operands: tuple[Operand, ...], **constants: int) -> None:
        symbol = template + "".join(f"_{key}{value}" for key, value in constants.items())
        self.bindings[symbol] = {"template": template, "source": source, "constants": constants, "symbol": symbol}
        self.calls.append(Call(op, symbol, operands, {}))

    def linear(self, x: Operand, weight: str, n: int, k: int, form: str, y: Operand, accumulate: int = 0) -> None:
        if form in ("q4_1", "q8_0"):
            name = f"{x.buffer}.i16g32"
            groups = Operand(buffer=name, columns=k // 32 * 72)
            if all(buffer.name != name for buffer in self.buffers):
                self.buffer(name, k // 32 * 72, "u8", next(b.rows for b in self.buffers if b.name == x.buffer))
            self.call("quantize", "quantize_i16g32", "quantize.h", (x, groups), columns=k)
            x = groups
        operands = (x, self.weight(weight, (n, k), form), y)
        self.call("linear", f"linear_{form}", f"linear_{form}.h", operands, n=n, k=k, accumulate=accumulate)


def bits(value: float) -> int:
    return struct.unpack("<I", struct.pack("<f", value))[0]


def synthetic(shape: Shape, limits: Limits) -> tuple[Plan, list[dict]]:
    """The decoder as a lowering would give it: projections of one input side by side."""
    b, s = Builder(limits), shape
    q, kv = s.heads * s.head_dim, s.kv_heads * s.head_dim
    x, h, joined = b.buffer("x", s.hidden), b.buffer("h", s.hidden), b.buffer("qkv", q + 2 * kv)
    att, gate_up, act = b.buffer("att", q), b.buffer("gate_up", 2 * s.ffn), b.buffer("act", s.ffn)
    table = b.buffer("table", s.head_dim)
    last, logits = b.buffer("last", s.hidden, rows="R"), b.buffer("logits", s.vocab, rows="R")
    q_view = Operand(buffer="qkv", columns=q)
    k_view, v_view = (Operand(buffer="qkv", column=q + i * kv, columns=kv) for i in range(2))
    gate, up = (Operand(buffer="gate_up", column=i * s.ffn, columns=s.ffn) for i in range(2))
    cached = {"kv_heads": s.kv_heads, "head_dim": s.head_dim, "page_size": PAGE, "kv": 1}

    def norm(source: Operand, name: str, length: int, target: Operand) -> None:
        operands = (source, b.weight(name, (length,), "f32"), target)
        groups = source.columns // length
        b.call(
            "rms_norm", "rms_norm", "rms_norm.h", operands, columns=source.columns, groups=groups, eps_bits=bits(1e-6)
        )

    head = b.weight("head", (s.vocab, s.hidden), s.head_format)
    b.call("embed", f"embed_{s.head_format}", "embed.h", (head, x), n=s.vocab, k=s.hidden)
    frequencies = b.weight("inv_freq", (s.head_dim // 2,), "f32")
    b.call("rope_table", "rope_table", "rope.h", (frequencies, table), columns=s.head_dim)
    for layer in range(s.layers):
        cache = Operand(cache="kv", layer=layer)
        norm(x, f"{layer}.norm1", s.hidden, h)
        b.linear(h, f"{layer}.qkv", q + 2 * kv, s.hidden, s.format, joined)
        for view, name in ((q_view, "q"), (k_view, "k")):
            if s.head_norms:
                norm(view, f"{layer}.{name}_norm", s.head_dim, view)
            constants = {"columns": view.columns, "head_dim": s.head_dim, "pairs": s.pairs}
            b.call("rope", "rope", "rope.h", (view, table, view), **constants)
        b.call("kv_write", "kv_write", "kv_write.h", (k_view, v_view, cache), **cached)
        scale = bits(s.head_dim**-0.5)
        b.call("attention", "attention", "attention.h", (q_view, cache, att), heads=s.heads, **cached, scale_bits=scale)
        b.linear(att, f"{layer}.o", s.hidden, q, s.format, x, 1)
        norm(x, f"{layer}.norm2", s.hidden, h)
        b.linear(h, f"{layer}.gate_up", 2 * s.ffn, s.hidden, s.format, gate_up)
        b.call("silu_mul", "silu_mul", "silu_mul.h", (gate, up, act), columns=s.ffn)
        b.linear(act, f"{layer}.down", s.hidden, s.ffn, s.format, x, 1)
    b.call("gather", "gather", "gather.h", (x, last), columns=s.hidden)
    norm(last, "norm", s.hidden, last)
    b.linear(last, "head", s.vocab, s.hidden, s.head_format, logits)
    b.weights.pop()  # the tied head is listed once
    b.call("sample", "sample", "sample.h", (logits,), v=s.vocab)
    pages = limits.seqs * limits.context // PAGE
    caches = (Cache("kv", s.layers, s.kv_heads, s.head_dim, PAGE, pages, "bf16"),)
    plan = Plan("synthetic", limits, s.vocab, b.arena, tuple(b.buffers), caches, tuple(b.weights), tuple(b.calls))
    check(plan)
    return plan, list(b.bindings.values())


class Weights:
    """Every tensor in one mapping: of a file, as a worker maps its weights, or anonymous huge pages."""

    def __init__(self, plan: Plan, memory: str, folder: Path) -> None:
        self.offsets: dict[str, int] = {}
        self.sizes = {weight.name: weight.nbytes for weight in plan.weights}
        total = 0
        for weight in plan.weights:
            self.offsets[weight.name] = total
            total += (weight.nbytes + 63) // 64 * 64
        self.offsets[EVERYTHING], self.sizes[EVERYTHING] = 0, total // 256 * 256
        if memory == "file":
            path = folder / "weights"
            with path.open("w+b") as file:
                file.truncate(total)
                self.map = mmap.mmap(file.fileno(), total)
        else:
            self.map = mmap.mmap(-1, total, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
            self.map.madvise(mmap.MADV_HUGEPAGE)
        patterns = {form: pattern(form) for form in {weight.format for weight in plan.weights}}
        for weight in plan.weights:
            one = patterns[weight.format]
            start = self.offsets[weight.name]
            for at in range(0, weight.nbytes, len(one)):
                self.map[start + at : start + min(at + len(one), weight.nbytes)] = one[: weight.nbytes - at]

    def tensor(self, name: str) -> memoryview:
        start = self.offsets[name]
        return memoryview(self.map)[start : start + self.sizes[name]]

    unchecked = tensor

    def check(self, names: Iterable[str]) -> None:
        """Nothing to compare with."""


def pattern(form: str) -> bytes:
    """Bytes to fill a tensor with: values of ordinary size, in the format's own block."""
    noise = bytes((index * 167 + index // 251) % 256 for index in range(1 << 16))
    if form == "f32":
        return struct.pack("<f", 1.0) * 4096
    if form == "bf16":
        return b"".join(bytes((low, 0x3C | (low & 0x80))) for low in noise)
    half = struct.pack("<e", ONE_THIRTY_SECOND / 16)
    head = half * 16 + (struct.pack("<e", -ONE_THIRTY_SECOND / 2) * 16 if form == "q4_1" else b"")
    body = 256 if form == "q4_1" else 512
    return b"".join(head + noise[at : at + body] for at in range(0, len(noise), body))
