"""Which modules a program may import: a static closure over source text.

An import anywhere counts, whether at the top or in a function, since which branch runs
is not known; only conditions that are known in a bundle (platform, Python version, type
checking, running as a script) are decided. What is left out beyond that is listed by
hand, each with its reason, in `cuts`.
"""

from __future__ import annotations

import ast
import re
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from pih_runtime.errors import BuildError

PYTHON = (3, 11)
_KNOWN = {"sys.platform": "linux", "os.name": "posix", "__name__": "", "sys.version_info": PYTHON}
_DOTTED = re.compile(r"([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+)(?::\w+)?")

# (importer, imported) → why the edge is not followed; importer '*' stands for every one.
Cuts = Mapping[tuple[str, str], str]


@dataclass(frozen=True, slots=True)
class Module:
    """A module that was found: path names it in messages; a compiled one has no text."""

    path: str
    text: bytes
    package: bool


def close(
    roots: Mapping[str, str],
    find: Callable[[str], Module | None],
    references: Callable[[str, Module], set[str]],
    cuts: Cuts,
) -> dict[str, str]:
    """Every name reached from `roots` (name → reason), found or not, with its reason: who imports it first."""
    reached = dict(sorted(roots.items()))
    queue = deque(reached)
    while queue:
        name = queue.popleft()
        module = find(name)
        if module is None:
            continue
        for imported in sorted(references(name, module)):
            if imported not in reached and not is_cut(name, imported, cuts):
                reached[imported] = f"imported by {name}"
                queue.append(imported)
    return reached


def is_cut(importer: str, imported: str, cuts: Cuts) -> bool:
    """True where this edge, or the same one to a package above `imported`, is among the cuts."""
    return any((who, what) in cuts for who in (importer, "*") for what in prefixes(imported))


def prefixes(dotted: str) -> list[str]:
    """'a.b.c' → a, a.b, a.b.c: importing a module imports its packages."""
    parts = dotted.split(".")
    return [".".join(parts[:count]) for count in range(1, len(parts) + 1)]


def imports(name: str, module: Module) -> set[str]:
    """Names that the import statements of `module`, which is `name`, may load: modules, or attributes of modules."""
    package = name if module.package else name.rpartition(".")[0]
    found: set[str] = set()
    for node in _reachable(_parse(module)):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = _absolute(package, node)
            found.add(base)
            found.update(f"{base}.{alias.name}" for alias in node.names if alias.name != "*")
    return {prefix for dotted in found if dotted for prefix in prefixes(dotted)}


def demands(name: str, module: Module) -> set[str]:
    """Modules without which `module` cannot be imported at all: what its first-level statements import."""
    package = name if module.package else name.rpartition(".")[0]
    found: set[str] = set()
    for node in _parse(module).body:
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            found.add(_absolute(package, node))
    return found


def loadable(modules: Mapping[str, Module], outside: AbstractSet[str]) -> dict[str, Module]:
    """Those of `modules` that can be imported: without the ones that need a package neither here nor in `outside`."""
    left = dict(modules)
    needs = {name: demands(name, module) for name, module in modules.items()}
    while True:
        roots = {name.partition(".")[0] for name in left} | outside
        lost = {
            name
            for name in left
            if any(
                need.partition(".")[0] not in roots or (need in modules and need not in left) for need in needs[name]
            )
        }
        if not lost:
            return left
        left = {name: module for name, module in left.items() if name not in lost}


def dotted_strings(module: Module) -> set[str]:
    """Strings that read like 'package.module' or 'package.module:attribute', as import_module is given them."""
    return {
        match[1]
        for node in _reachable(_parse(module))
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and (match := _DOTTED.fullmatch(node.value))
    }


def _parse(module: Module) -> ast.Module:
    try:
        return ast.parse(module.text)
    except (SyntaxError, ValueError) as problem:
        raise BuildError(f"not Python {PYTHON[0]}.{PYTHON[1]}: {problem}", where=module.path) from problem


def _reachable(node: ast.AST) -> Iterator[ast.AST]:
    if not isinstance(node, ast.If):
        yield node
        branches = list(ast.iter_child_nodes(node))
    else:
        holds = decide(node.test)
        branches = [*(node.body if holds is not False else ()), *(node.orelse if holds is not True else ())]
    for branch in branches:
        yield from _reachable(branch)


def decide(test: ast.expr) -> bool | None:
    """Is the condition true or false in every bundle? None where that is not known."""
    if ast.unparse(test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING"):
        return False
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        inner = decide(test.operand)
        return None if inner is None else not inner
    if isinstance(test, ast.Compare) and len(test.ops) == 1:
        known = _KNOWN.get(ast.unparse(test.left))
        try:
            other = ast.literal_eval(test.comparators[0])
        except ValueError:
            return None
        if type(known) is type(other):
            return _compare(known, test.ops[0], other)
    return None


def _compare(left: object, op: ast.cmpop, right: object) -> bool | None:
    if isinstance(op, ast.Eq):
        return left == right
    if isinstance(op, ast.NotEq):
        return left != right
    # A version is known to two places only: 3.11 against (3, 11, 4) is not decided.
    if isinstance(left, tuple) and isinstance(right, tuple) and len(right) <= len(left):
        if isinstance(op, ast.GtE):
            return left >= right
        if isinstance(op, ast.Lt):
            return left < right
    return None


def _absolute(package: str, node: ast.ImportFrom) -> str:
    if not node.level:
        return node.module or ""
    parts = package.split(".")
    base = parts[: len(parts) - node.level + 1]
    return ".".join([*base, node.module] if node.module else base)
