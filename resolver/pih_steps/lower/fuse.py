"""Passes over a graph that make fewer and larger calls; what is computed stays the same.

Each takes a graph and gives a graph. Buffers are written once but for calls in place, which the passes look out for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from pih_runtime.errors import BuildError
from pih_runtime.ops import OPS
from pih_runtime.plan import Operand
from pih_steps.lower.graph import PLUS, Graph, Node, Parameter, Value, rename
from pih_steps.lower.report import Report


def touches(node: Node, buffer: str) -> bool:
    """Whether the call reads or writes this buffer."""
    return any(operand.buffer == buffer for operand in node.operands)


def output(node: Node) -> Operand | None:
    """The operand that the call writes; None where its result leaves the plan (`sample`)."""
    has_output = node.op == PLUS or OPS[node.op].outputs
    return node.operands[-1] if has_output else None


def merge_linears(graph: Graph, report: Report) -> Graph:
    """Linears of one input (q, k, v; gate, up) become one, where format and layout let their rows be stacked."""
    nodes = list(graph.nodes)
    values, parameters = dict(graph.values), dict(graph.parameters)
    uses = Counter(operand.weight for node in nodes for operand in node.operands if operand.weight)
    index = 0
    while index < len(nodes):
        group = _same_input(nodes, index, parameters, uses, report)
        if len(group) > 1:
            members = [nodes[at] for at in group]
            merged, views = _stack(members, values, parameters)
            rest = [node for at, node in enumerate(nodes) if at > index and at not in group]
            nodes[index:] = [merged, *(rename(node, views) for node in rest)]
        index += 1
    return replace(graph, values=values, parameters=parameters, nodes=tuple(nodes))


def _same_input(
    nodes: Sequence[Node], start: int, parameters: Mapping[str, Parameter], uses: Mapping[str, int], report: Report
) -> list[int]:
    """Indices of the linears that can be stacked with the one at `start`, itself first."""
    first = nodes[start]
    if first.op != "linear":
        return [start]
    x, like = first.operands[0], parameters[first.operands[1].weight]
    format_ = like.format
    layouts = {k.layout for k in report.kernels if k.op == "linear" and k.weight == format_}
    rows = max((report.layouts[layout] for layout in layouts), default=1)
    group = []
    for at in range(start, len(nodes)):
        node = nodes[at]
        if node.op == "linear" and node.operands[0] == x:
            weight = node.operands[1].weight
            parameter = parameters[weight]
            same = (parameter.format, parameter.split) == (format_, like.split)
            if same and uses[weight] == 1 and parameter.shape[0] % rows == 0:
                group.append(at)
        written = output(node)
        if written is not None and written.buffer == x.buffer:
            break
    return group if group and group[0] == start else [start]


def _stack(
    members: Sequence[Node], values: dict[str, Value], parameters: dict[str, Parameter]
) -> tuple[Node, dict[str, tuple[str, int]]]:
    """The stacked linear, and where each member's output now lies; enters the new value and parameter."""
    outputs = [values.pop(node.operands[2].buffer) for node in members]
    weights = [node.operands[1].weight for node in members]
    parts = [parameters.pop(weight) for weight in weights]
    columns = sum(value.columns for value in outputs)
    buffer = _joined([value.name for value in outputs])
    weight = _joined(weights)
    values[buffer] = Value(buffer, outputs[0].rows, columns)
    sources = tuple(source for part in parts for source in part.sources)
    parameters[weight] = Parameter(parts[0].format, (columns, parts[0].shape[1]), sources, (), parts[0].split)
    views, at = {}, 0
    for value in outputs:
        views[value.name] = (buffer, at)
        at += value.columns
    operands = (members[0].operands[0], Operand(weight=weight), Operand(buffer=buffer, columns=columns))
    return replace(members[0], operands=operands), views


def _joined(names: Sequence[str]) -> str:
    """'a.q_proj.w', 'a.k_proj.w' → 'a.q_proj+k_proj.w': parts between dots that differ are listed."""
    split = [name.split(".") for name in names]
    head = _shared(split)
    tail = _shared([parts[head:][::-1] for parts in split])
    middle = "+".join(".".join(parts[head : len(parts) - tail]) for parts in split)
    return ".".join([*split[0][:head], middle, *split[0][len(split[0]) - tail :]])


def _shared(lists: Sequence[Sequence[str]]) -> int:
    """How many first items all lists have in common."""
    columns = enumerate(zip(*lists, strict=False))
    return next((index for index, column in columns if len(set(column)) > 1), min(len(items) for items in lists))


def accumulate(graph: Graph) -> Graph:
    """X + linear(a) becomes a linear that adds to x in place; no other addition exists in a plan."""
    nodes, values = list(graph.nodes), dict(graph.values)
    while (at := next((i for i, node in enumerate(nodes) if node.op == PLUS), None)) is not None:
        x, term, total = nodes[at].operands
        source = _producer(nodes, at, x, term)
        if source is None:
            raise BuildError(
                f"no kernel adds {x.buffer} and {term.buffer}",
                where=graph.model,
                fix="add the output of a linear to a value",
            )
        linear = nodes[source]
        nodes[source] = replace(linear, operands=(*linear.operands[:2], x), attrs={**linear.attrs, "accumulate": True})
        after = [rename(node, {total.buffer: (x.buffer, x.column)}) for node in nodes[at + 1 :]]
        nodes[at:] = after
        del values[total.buffer], values[term.buffer]
    return replace(graph, values=values, nodes=tuple(nodes))


def _producer(nodes: Sequence[Node], at: int, x: Operand, term: Operand) -> int | None:
    """The linear whose only purpose is this addition, if x is as yet, and from then on, free to be overwritten."""
    users = [i for i, node in enumerate(nodes) if touches(node, term.buffer)]
    if len(users) != 2 or users[1] != at or nodes[users[0]].op != "linear" or nodes[users[0]].operands[2] != term:
        return None
    source = users[0]
    disturbed = any(touches(node, x.buffer) for node in [*nodes[source:at], *nodes[at + 1 :]])
    return None if disturbed else source


def merge_ropes(graph: Graph) -> Graph:
    """Rotations of neighbouring columns by one table (k beside q) become one call."""
    nodes = list(graph.nodes)
    index = 0
    while index < len(nodes):
        partner = _neighbour(nodes, index) if nodes[index].op == "rope" else None
        if partner is not None:
            first, second = nodes[index].operands[0], nodes[partner].operands[0]
            both = replace(first, column=min(first.column, second.column), columns=first.columns + second.columns)
            nodes[index] = replace(nodes[index], operands=(both, nodes[index].operands[1], both))
            del nodes[partner]
        index += 1
    return replace(graph, nodes=tuple(nodes))


def _neighbour(nodes: Sequence[Node], index: int) -> int | None:
    """A later rope of the columns beside this one's, if nothing touches those in between."""
    mine, table, _ = nodes[index].operands
    for at in range(index + 1, len(nodes)):
        node = nodes[at]
        if node.op == "rope" and node.operands[1] == table and node.attrs == nodes[index].attrs:
            other = node.operands[0]
            beside = other.column in (mine.column + mine.columns, mine.column - other.columns)
            between = [operand for step in nodes[index + 1 : at] for operand in step.operands]
            if other.buffer == mine.buffer and beside and not any(overlap(other, operand) for operand in between):
                return at
    return None


def overlap(a: Operand, b: Operand) -> bool:
    """Whether two views share columns of one buffer."""
    return a.buffer == b.buffer and a.column < b.column + b.columns and b.column < a.column + a.columns
