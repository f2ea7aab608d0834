"""Tensor parallelism: one rank's part of a graph, the same for every rank, with the collectives that join the parts.

What belongs to heads and to the feed-forward's columns is divided: linears that make it have a share of their rows, so
that each rank computes columns of its own; linears that consume it have a share of their columns, so that each computes
a part of every sum, and `all_reduce` adds the parts. What lies between is whole on every rank. The head of a model that
is a tensor of its own has a share of its rows, and `all_gather` lays the logits together; a head that is the embedding
too stays whole, as every rank looks ids up in all of it.
(Megatron-LM: Shoeybi et al., arXiv 1909.08053.)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from pih_runtime.errors import BuildError, ResolutionError
from pih_runtime.plan import Operand
from pih_steps.lower.graph import PLUS, Graph, Node, Parameter, Value, rename

MOST_RANKS = 64
_OWN = {"attention": (0, 2), "kv_write": (0, 1), "silu_mul": (0, 1, 2)}  # operands that are divided by columns
_INSIDE = ("rms_norm", "rope", *_OWN)  # what may touch a divided value beside linears


def shard(graph: Graph, ranks: int) -> Graph:
    """One rank's part; raises ResolutionError where heads or columns cannot be divided."""
    if ranks == 1:
        return graph
    head = _own_head(graph)
    _check_divisible(graph, ranks, head)
    divided = {node.operands[at].buffer for node in graph.nodes for at in _OWN.get(node.op, ())}
    part = _Part(graph, ranks, divided, head)
    for at, node in enumerate(graph.nodes):
        part.take(node, graph.nodes[at + 1 :])
    caches = tuple(replace(cache, kv_heads=cache.kv_heads // ranks) for cache in graph.caches)
    return replace(graph, values=part.values, parameters=part.parameters, caches=caches, nodes=tuple(part.nodes))


class _Part:
    """Collects the calls of one rank."""

    def __init__(self, graph: Graph, ranks: int, divided: set[str], head: str) -> None:
        self.graph, self.ranks, self.divided, self.head = graph, ranks, divided, head
        self.values: dict[str, Value] = {
            name: replace(value, columns=value.columns // ranks) if name in divided else value
            for name, value in graph.values.items()
        }
        self.parameters: dict[str, Parameter] = dict(graph.parameters)
        self.nodes: list[Node] = []
        self.reduced: set[str] = set()
        self.homes: dict[str, tuple[str, int]] = {}

    def take(self, node: Node, later: Sequence[Node]) -> None:
        """The call as this rank makes it, and the collective that it needs. later: the graph's calls after it."""
        buffers = {operand.buffer for operand in node.operands}
        if node.op == "linear":
            self._linear(node)
        elif node.op == PLUS and node.operands[1].buffer in self.reduced:
            self._add(node, later)
        elif buffers & self.divided and (node.op not in _INSIDE or not self._within(node)):
            raise self._fail(f"{node.op} of {min(buffers & self.divided)} needs columns that other ranks have")
        else:
            self._put(node)

    def _linear(self, node: Node) -> None:
        x, weight, y = node.operands
        if x.buffer in self.divided:
            self._divide(weight.weight, "columns")
            self._put(node)
            self.nodes.append(Node("all_reduce", (y, y), {}))
            self.reduced.add(y.buffer)
        elif y.buffer in self.divided:
            self._divide(weight.weight, "rows")
            self._put(node)
        elif weight.weight == self.head:
            self._divide(weight.weight, "rows")
            share = Value(f"{y.buffer}.share", self.values[y.buffer].rows, y.columns // self.ranks)
            self.values[share.name] = share
            part = Operand(buffer=share.name, columns=share.columns)
            self._put(replace(node, operands=(x, weight, part)))
            self.nodes.append(Node("all_gather", (part, y), {}))
        else:
            self._put(node)

    def _add(self, node: Node, later: Sequence[Node]) -> None:
        """To the first value, in place: a linear cannot add to it, as every rank would add its own."""
        if any(operand.buffer == node.operands[0].buffer for item in later for operand in item.operands):
            raise self._fail(f"{node.operands[0].buffer} is read again after something was added to it")
        x, term, total = (self._here(operand) for operand in node.operands)
        self.nodes.append(Node("add", (term, x), {}))
        self.homes[total.buffer] = (x.buffer, x.column)
        del self.values[total.buffer]

    def _within(self, node: Node) -> bool:
        """Whether a rank has all that each of its results needs: a norm of heads, and not of all columns together."""
        return node.op != "rms_norm" or not (
            self.values[node.operands[0].buffer].columns % self.graph.parameters[node.operands[1].weight].shape[0]
        )

    def _divide(self, weight: str, split: str) -> None:
        whole = self.graph.parameters[weight]
        rows, columns = whole.shape
        shape = (rows // self.ranks, columns) if split == "rows" else (rows, columns // self.ranks)
        if self.parameters[weight] not in (whole, replace(whole, shape=shape, split=split)):
            raise self._fail(f"{weight} would be divided in two ways")
        self.parameters[weight] = replace(whole, shape=shape, split=split)

    def _fail(self, what: str) -> BuildError:
        return BuildError(f"among ranks, {what}", where="device.count", fix="set device.count = 1")

    def _put(self, node: Node) -> None:
        self.nodes.append(replace(node, operands=tuple(self._here(operand) for operand in node.operands)))

    def _here(self, operand: Operand) -> Operand:
        """The operand where it lies on this rank."""
        found = rename(Node("", (operand,), {}), self.homes).operands[0]
        return replace(found, columns=self.values[found.buffer].columns) if found.buffer in self.divided else found


def _own_head(graph: Graph) -> str:
    """The weight that makes the logits, where nothing else uses it; else ''."""
    uses = Counter(operand.weight for node in graph.nodes for operand in node.operands if operand.weight)
    logits = {node.operands[0].buffer for node in graph.nodes if node.op == "sample"}
    made = [
        node.operands[1].weight for node in graph.nodes if node.op == "linear" and node.operands[2].buffer in logits
    ]
    return made[0] if made and uses[made[0]] == 1 else ""


def _check_divisible(graph: Graph, ranks: int, head: str) -> None:
    counts = dict(_counts(graph, head))
    if all(count % ranks == 0 for count in counts.values()):
        return
    fitting = [number for number in range(1, MOST_RANKS + 1) if all(count % number == 0 for count in counts.values())]
    what = next(f"{count} {name}" for name, count in counts.items() if count % ranks)
    raise ResolutionError(
        f"{what} cannot be divided among {ranks} ranks",
        where="device.count",
        fix="this model is not divided: set device.count = 1"
        if fitting == [1]
        else f"this model is divided among {', '.join(map(str, fitting))}; set device.count to one of them",
    )


def _counts(graph: Graph, head: str) -> Mapping[str, int]:
    """What is divided, in words, and how much of it there is."""
    found: dict[str, int] = {}
    for cache in graph.caches:
        found["key and value heads"] = cache.kv_heads
    for node in graph.nodes:
        if node.op == "attention":
            found["query heads"] = node.operands[0].columns // node.attrs.get("head_dim", 1)
        elif node.op == "silu_mul":
            found["feed-forward columns"] = node.operands[0].columns
    if head:
        found["rows of the head"] = graph.parameters[head].shape[0]
    return found
