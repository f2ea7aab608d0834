"""The closure as a tree that fits a terminal: layer, component, its largest files, the rest of them counted."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import attrs

from pih.inspect.bundle import Component, Contents, File

_SHOWN = 3  # files of a component that are named before the rest is counted,
_LEAST = 0.01  # each of this share of its layer at least
_WIDTH = 80
_UNITS = ("B", "kB", "MB", "GB", "TB")


@attrs.frozen
class Node:
    """A part of the closure. size: bytes of its files. files: how many they are. text: its name, and what to add."""

    name: str
    size: int
    files: int
    text: str = ""
    below: tuple[Node, ...] = ()


def tree(held: Contents, components: Iterable[Component]) -> Node:
    """Everything of a bundle, the largest first, layers in their order."""
    versions = {row.name: row.version for row in components}
    layers = []
    for layer in held.layers:
        own = [file for file in held.files if file.layer == layer.name]
        groups: dict[str, list[File]] = {}
        for file in own:
            groups.setdefault(file.component, []).append(file)
        parts = _largest(
            _component(name, versions.get(name, ""), files, layer.size * _LEAST) for name, files in groups.items()
        )
        shipped = f"{amount(layer.compressed)} shipped, " if layer.compressed else ""
        layers.append(Node(layer.name, layer.size, len(own), f" layer ({shipped}{_count(len(own))})", tuple(parts)))
    shipped = f"{amount(held.compressed)} shipped, " if held.compressed else ""
    return Node(held.name, held.size, len(held.files), f" ({shipped}{_count(len(held.files))})", tuple(layers))


def _component(name: str, version: str, files: list[File], least: float) -> Node:
    leaves = _largest(Node(file.path, file.size, 1) for file in files if file.size and file.size >= least)[:_SHOWN]
    size = sum(file.size for file in files)
    rest = len(files) - len(leaves)
    if leaves and rest:
        leaves.append(Node("", size - sum(leaf.size for leaf in leaves), rest, _count(rest, "more ")))
    count = f" ({_count(len(files))})" if len(files) > 1 else ""
    return Node(name, size, len(files), f" {version}{count}" if version else count, tuple(leaves))


def _largest(nodes: Iterable[Node]) -> list[Node]:
    return sorted(nodes, key=lambda node: (-node.size, node.name))


def lines(root: Node) -> Iterator[str]:
    """Size, share of the whole, and the branch, within 80 columns."""
    yield _line(root, root.size, "", "")
    yield from _below(root, root.size, "")


def _below(node: Node, whole: int, indent: str) -> Iterator[str]:
    for index, part in enumerate(node.below):
        last = index == len(node.below) - 1
        yield _line(part, whole, indent, "└─ " if last else "├─ ")
        yield from _below(part, whole, indent + ("   " if last else "│  "))


def _line(node: Node, whole: int, indent: str, branch: str) -> str:
    share = f"{node.size / whole:.1%}" if whole else ""
    head = f"{amount(node.size):>8} {share:>6}  {indent}{branch}"
    name = _cut(node.name, _WIDTH - len(head) - min(len(node.text), 40))
    return (head + name + node.text)[:_WIDTH].rstrip()


def _cut(text: str, room: int) -> str:
    """The end of a name says more than its middle."""
    if len(text) <= room:
        return text
    head = room // 3
    return f"{text[:head]}…{text[len(text) - room + head + 1 :]}"


def amount(count: float) -> str:
    """Bytes as people read them: three digits or so, and a unit of a thousand."""
    unit = 0
    while count >= 999.5 and unit < len(_UNITS) - 1:
        count, unit = count / 1000, unit + 1
    digits = 0 if unit == 0 or count >= 99.95 else 1
    return f"{count:.{digits}f} {_UNITS[unit]}"


def _count(files: int, more: str = "") -> str:
    return f"{files} {more}file" if files == 1 else f"{files} {more}files"
