"""A model as a graph: op calls on values, not yet placed in memory nor bound to kernels.

A model plugin's `graph(config, tensors, limits)` builds one with `Builder`, in the model's own words; passes
(`fuse`, `bind`, `memory`) turn it into a plan. Operands are the plan's, a buffer being a value's name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from pih_runtime.errors import BuildError
from pih_runtime.plan import Operand
from pih_steps.lower.checkpoint import Tensor

PLUS = "plus"  # of two values; exists in graphs only: `fuse` makes it part of a linear, or `shard` an `add` in place


@dataclass(frozen=True, slots=True)
class Value:
    """A matrix of `rows` ('T' or 'R') by `columns`; dtype f32 or u8 (a private activation format)."""

    name: str
    rows: str
    columns: int
    dtype: str = "f32"


@dataclass(frozen=True, slots=True)
class Parameter:
    """A weight as the graph uses it: stacked rows of the checkpoint's tensors, or computed values.

    split: as in `plan.Weight`; shape is then that of one rank's share.
    """

    format: str
    shape: tuple[int, ...]
    sources: tuple[str, ...] = ()
    values: tuple[float, ...] = ()
    split: str = ""


@dataclass(frozen=True, slots=True)
class CacheShape:
    """What a model keeps for each position: layers of keys and values."""

    name: str
    layers: int
    kv_heads: int
    head_dim: int


@dataclass(frozen=True, slots=True)
class Node:
    """One call: operands in the op's order, inputs then outputs."""

    op: str
    operands: tuple[Operand, ...]
    attrs: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Graph:
    """A model: values and parameters by name, the caches it keeps, its calls in order.

    modes: for an op, the least exact type that its sums may pass through; f32 where it is not named.
    """

    model: str
    vocab: int
    values: Mapping[str, Value]
    parameters: Mapping[str, Parameter]
    caches: tuple[CacheShape, ...]
    nodes: tuple[Node, ...]
    modes: Mapping[str, str] = field(default_factory=dict)


class Builder:
    """Collects a graph's calls; every tensor is checked for its shape when it is named, and all must be used."""

    def __init__(self, model: str, tensors: Mapping[str, Tensor]) -> None:
        self.model = model
        self._tensors = tensors
        self._values: dict[str, Value] = {}
        self._parameters: dict[str, Parameter] = {}
        self._caches: dict[str, CacheShape] = {}
        self._nodes: list[Node] = []
        self._modes: dict[str, str] = {}

    def needs(self, op: str, mode: str) -> None:
        """The sums of this op may pass through no type less exact than `mode`: bf16, f16, f32 (default), f64, exact."""
        self._modes[op] = mode

    def embed(self, name: str, table: str, vocab: int, hidden: int) -> Operand:
        """The rows of the embedding table for the step's ids."""
        y = self._value(name, "T", hidden)
        return self._call("embed", (self._tensor(table, (vocab, hidden)),), y)

    def rms_norm(self, name: str, x: Operand, weight: str, eps: float) -> Operand:
        """A new value: x, normalised over all its columns."""
        y = self._value(name, self._rows(x), x.columns)
        return self._call("rms_norm", (x, self._tensor(weight, (x.columns,))), y, eps=eps)

    def rms_norm_heads(self, x: Operand, weight: str, head_dim: int, eps: float) -> Operand:
        """x, each head of it normalised in place."""
        return self._call("rms_norm", (x, self._tensor(weight, (head_dim,))), x, eps=eps)

    def linear(self, name: str, x: Operand, weight: str, columns: int) -> Operand:
        """A new value of `columns`: the weight [columns, x.columns] applied to x."""
        y = self._value(name, self._rows(x), columns)
        return self._call("linear", (x, self._tensor(weight, (columns, x.columns))), y, accumulate=False)

    def rope_table(self, name: str, inv_freq: tuple[float, ...]) -> Operand:
        """Cosines and sines of the step's positions."""
        self._parameters["rope.inv_freq"] = Parameter("f32", (len(inv_freq),), values=inv_freq)
        y = self._value(name, "T", 2 * len(inv_freq))
        return self._call("rope_table", (Operand(weight="rope.inv_freq"),), y)

    def rope(self, x: Operand, table: Operand, head_dim: int, pairs: str) -> Operand:
        """x, each head of it rotated in place."""
        return self._call("rope", (x, table), x, head_dim=head_dim, pairs=pairs)

    def cache(self, name: str, layers: int, kv_heads: int, head_dim: int) -> None:
        """Declare a cache group."""
        self._caches[name] = CacheShape(name, layers, kv_heads, head_dim)

    def kv_write(self, k: Operand, v: Operand, cache: str, layer: int) -> None:
        """Keep k and v of the step's tokens."""
        self._call("kv_write", (k, v), Operand(cache=cache, layer=layer), head_dim=self._caches[cache].head_dim)

    def attention(self, name: str, q: Operand, cache: str, layer: int, scale: float) -> Operand:
        """A new value: q's heads attending to the cache, the step's own tokens included."""
        shape = self._caches[cache]
        heads, rest = divmod(q.columns, shape.head_dim)
        if rest or heads % shape.kv_heads:
            raise BuildError(
                f"{name} has {q.columns} columns of queries, no whole number of heads of {shape.head_dim} for each of "
                f"{shape.kv_heads} key and value heads",
                where=self.model,
                fix="take a checkpoint that this model plugin can run",
            )
        y = self._value(name, "T", q.columns)
        kv = Operand(cache=cache, layer=layer)
        return self._call("attention", (q, kv), y, head_dim=shape.head_dim, scale=scale)

    def silu_mul(self, name: str, gate: Operand, up: Operand) -> Operand:
        """A new value: silu(gate) * up."""
        return self._call("silu_mul", (gate, up), self._value(name, self._rows(gate), gate.columns))

    def add(self, name: str, x: Operand, y: Operand) -> Operand:
        """A new value: x + y."""
        return self._call(PLUS, (x, y), self._value(name, self._rows(x), x.columns))

    def gather(self, name: str, x: Operand) -> Operand:
        """The rows of x whose logits are wanted."""
        return self._call("gather", (x,), self._value(name, "R", x.columns))

    def finish(self, logits: Operand, unused: frozenset[str] = frozenset()) -> Graph:
        """Sample from the logits; every tensor must have been used, but for those in `unused`."""
        self._nodes.append(Node("sample", (logits,), {}))
        used = {source for parameter in self._parameters.values() for source in parameter.sources}
        left = sorted(set(self._tensors) - used - unused)
        if left:
            raise BuildError(
                f"the config has no place for tensor {left[0]}" + (f" and {len(left) - 1} more" if left[1:] else ""),
                where=self.model,
                fix="config and tensors must be of one model: compare the number of layers, biases, tied embeddings",
            )
        return Graph(
            self.model,
            logits.columns,
            self._values,
            self._parameters,
            tuple(self._caches.values()),
            tuple(self._nodes),
            self._modes,
        )

    def _call(self, op: str, inputs: tuple[Operand, ...], output: Operand, **attrs: Any) -> Operand:
        self._nodes.append(Node(op, (*inputs, output), attrs))
        return output

    def _value(self, name: str, rows: str, columns: int) -> Operand:
        self._values[name] = Value(name, rows, columns)
        return Operand(buffer=name, columns=columns)

    def _rows(self, x: Operand) -> str:
        return self._values[x.buffer].rows

    def _tensor(self, name: str, shape: tuple[int, ...]) -> Operand:
        tensor = self._tensors.get(name)
        if tensor is None or tensor.shape != shape:
            found = "is missing" if tensor is None else f"has the shape {list(tensor.shape)}"
            raise BuildError(
                f"tensor {name} {found}, the config asks for {list(shape)}",
                where=self.model,
                fix="config and tensors must be of the same model",
            )
        self._parameters[name] = Parameter(tensor.format, shape, (name,))
        return Operand(weight=name)


def rename(node: Node, views: Mapping[str, tuple[str, int]]) -> Node:
    """The node with each buffer replaced by its new home: (buffer, columns to the right)."""
    if views.keys().isdisjoint([operand.buffer for operand in node.operands]):
        return node

    def moved(operand: Operand) -> Operand:
        if operand.buffer not in views:
            return operand
        buffer, shift = views[operand.buffer]
        return replace(operand, buffer=buffer, column=operand.column + shift)

    return replace(node, operands=tuple(moved(operand) for operand in node.operands))
