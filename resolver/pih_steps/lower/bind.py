"""Binding a graph to a kernel pack: a layout for each weight, a kernel and its constants for each call.

Nothing is picked that the report does not name; a call without a fast kernel is an error, unless the profile lets its
op run through the pack's scalar reference, which the binding then says.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from pih_runtime.errors import ResolutionError
from pih_runtime.ops import COLLECTIVES
from pih_runtime.plan import Cache, Call, Limits, Operand
from pih_steps.lower import fused
from pih_steps.lower.fuse import output
from pih_steps.lower.graph import Graph, Node, Value
from pih_steps.lower.pick import FAST, REFERENCE, Form, Pack, Pick, constants, figures, needed, none_found, picks
from pih_steps.lower.report import Report


@dataclass(frozen=True, slots=True)
class Binding:
    """One kernel of the pack, with its compile-time constants; serves every call with its symbol."""

    op: str
    weight: str
    layout: str
    activation: str
    template: str
    source: str
    constants: Mapping[str, int]
    symbol: str
    precision: str
    mode: str
    path: str


@dataclass(frozen=True, slots=True)
class Bound:
    """Calls on values (private activations among them), the parameters' forms, and the bindings by symbol.

    fallbacks: each binding through a scalar reference, with the reason, in words.
    """

    calls: tuple[Call, ...]
    values: Mapping[str, Value]
    forms: Mapping[str, Form]
    bindings: tuple[Binding, ...]
    fallbacks: tuple[str, ...]


def bind(
    graph: Graph, report: Report, caches: Mapping[str, Cache], limits: Limits, fallbacks: Collection[str] = ()
) -> Bound:
    """Choose kernels for the whole graph; raises ResolutionError naming op and format where the pack has none.

    fallbacks: ops that may run through the pack's scalar reference.
    """
    pack = Pack(graph, report, caches, limits, fallbacks)
    values = dict(graph.values)
    forms = _forms(pack)
    calls: list[fused.Bound] = []
    bindings: dict[str, Binding] = {}
    slow: dict[str, str] = {}
    quantized: dict[tuple[str, Operand], Operand] = {}

    def call(node: Node, pick: Pick) -> None:
        kernel = pick.kernel
        found = constants(node, kernel, pack)
        symbol = "_".join([pick.template, *(f"{name}{value}" for name, value in found.items())])
        bindings[symbol] = Binding(
            op=node.op,
            weight=kernel.weight,
            layout=kernel.layout,
            activation=kernel.activation,
            template=pick.template,
            source=kernel.source,
            constants=found,
            symbol=symbol,
            precision=kernel.precision,
            mode=kernel.mode,
            path=pick.path,
        )
        if pick.path == REFERENCE:
            name = f"{node.op} {kernel.weight}".rstrip()
            slow[symbol] = f"{name}: scalar reference {symbol} ({pick.why})"
        found = figures(node, pack)
        calls.append(fused.Bound(Call(node.op, symbol, node.operands, dict(node.attrs)), found, needed(node, pack)))

    for node in graph.nodes:
        if node.op in COLLECTIVES:  # the transport's, under the op's own name
            calls.append(fused.Bound(Call(node.op, node.op, node.operands, dict(node.attrs)), {}, "f32"))
            continue
        pick = _pick(node, forms, pack)
        if node.op == "linear" and pick.kernel.activation != "f32":
            x, form = node.operands[0], pick.kernel.activation
            if (form, x) not in quantized:
                step = _quantize(x, form, values, report)
                call(step, _quantize_pick(step, form, pack))
                quantized[form, x] = step.operands[1]
            node = replace(node, operands=(quantized[form, x], *node.operands[1:]))  # noqa: PLW2901 - the same call
        call(node, pick)
        written = output(node)
        if written is not None:
            quantized = {key: y for key, y in quantized.items() if key[1].buffer != written.buffer}
    joined = _joined(calls, report, bindings)
    ordered = sorted({call.symbol for call in joined} & bindings.keys())
    return Bound(
        joined,
        values,
        forms,
        tuple(bindings[symbol] for symbol in ordered),
        tuple(slow[symbol] for symbol in ordered if symbol in slow),
    )


def _joined(calls: Sequence[fused.Bound], report: Report, bindings: dict[str, Binding]) -> tuple[Call, ...]:
    """The calls, those that one kernel does together in one; enters the bindings of such kernels."""
    found: list[Call] = []
    at = 0
    while at < len(calls):
        joined = fused.match(calls, at, report.fused)
        if joined is None:
            found.append(calls[at].call)
            at += 1
            continue
        kernel, symbol = joined.kernel, joined.call.symbol
        bindings[symbol] = Binding(
            op=joined.call.op,
            weight="",
            layout="",
            activation="",
            template=kernel.template,
            source=kernel.source,
            constants=joined.constants,
            symbol=symbol,
            precision=kernel.precision,
            mode=kernel.mode,
            path=FAST,
        )
        found.append(joined.call)
        at += joined.count
    return tuple(found)


def _forms(pack: Pack) -> dict[str, Form]:
    """For each parameter the pack's most preferred form that all its calls can read."""
    uses: dict[str, list[Node]] = {}
    for node in pack.graph.nodes:
        for operand in node.operands:
            if operand.weight:
                uses.setdefault(operand.weight, []).append(node)
    return {name: _form(name, nodes, pack) for name, nodes in uses.items()}


def _form(name: str, nodes: Sequence[Node], pack: Pack) -> Form:
    """A form in which every call is fast comes before one that makes some slow."""
    parameter = pack.graph.parameters[name]
    formats = [parameter.format]
    if len(parameter.shape) == 1 and parameter.format in ("bf16", "f16"):
        formats.append("f32")  # exact, and a vector costs nothing
    ops = {node.op for node in nodes}
    kernels = [k for f in formats for k in pack.report.kernels if k.op in ops and k.weight == f]
    forms = [Form(kernel.weight, kernel.layout) for kernel in kernels]
    for choice in (replace(pack, fallbacks=()), pack):
        for form in forms:
            if all(picks(node, form, choice) for node in nodes):
                return form
    lost = next((node for node in nodes if not any(picks(node, form, pack) for form in forms)), nodes[0])
    wanted = (
        f"{' + '.join(sorted(ops))} for {parameter.format} weights of the shape {list(parameter.shape)}, as {name} is"
    )
    raise none_found(lost, wanted, [kernel for kernel in kernels if kernel.op == lost.op], pack)


def _pick(node: Node, forms: Mapping[str, Form], pack: Pack) -> Pick:
    weight = next((operand.weight for operand in node.operands if operand.weight), "")
    found = picks(node, forms[weight] if weight else Form("", ""), pack)
    if not found:
        wanted = f"{node.op} with {_listed(figures(node, pack))}"
        raise none_found(node, wanted, [kernel for kernel in pack.report.kernels if kernel.op == node.op], pack)
    return found[0]


def _listed(found: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {value}" for name, value in sorted(found.items()))


def _quantize(x: Operand, form: str, values: dict[str, Value], report: Report) -> Node:
    """The call that brings x into a private activation format; enters the value it makes."""
    activation = report.activations[form]
    if x.columns % activation.group:
        raise ResolutionError(
            f"{x.columns} columns are no whole number of groups of {activation.group}",
            where=f"{report.where}: activation {form}",
        )
    nbytes = x.columns // activation.group * activation.bytes_per_group
    name = f"{x.buffer}.{form}" if not x.column else f"{x.buffer}.{x.column}.{form}"
    values[name] = Value(name, values[x.buffer].rows, nbytes, "u8")
    return Node("quantize", (x, Operand(buffer=name, columns=nbytes)), {"format": form})


def _quantize_pick(node: Node, form: str, pack: Pack) -> Pick:
    found = [pick for pick in picks(node, Form("", ""), pack) if pick.kernel.activation == form]
    if not found:
        near = [kernel for kernel in pack.report.kernels if kernel.op == node.op and kernel.activation == form]
        raise none_found(node, f"quantize to {form}", near, pack)
    return found[0]
