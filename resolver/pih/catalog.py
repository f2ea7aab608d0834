"""The built-in catalog: every plugin.toml of the source tree, checked, as data.

May import `structure`, `toml_lines`. Importing a plugin's code is never needed to choose it.
"""

from __future__ import annotations

import hashlib
import json
import re
import tomllib
from pathlib import Path
from typing import Literal

import attrs
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion, Version

from pih.structure import Path as Keys
from pih.structure import RefusedError, StructureError, choice_problem, dotted, show, structure, unstructure
from pih.toml_lines import key_lines, line_of
from pih_runtime.contracts import ABI
from pih_runtime.errors import ResolutionError
from pih_runtime.ops import OPS

Kind = Literal[
    "platform", "storage", "backend", "kernels", "memory", "transport", "model", "execution", "surface", "health"
]
CAPABILITIES = (
    "backend.device",
    "execution.engine",
    "health.probe",
    "kernels.pack",
    "memory.pages",
    "model.decoder",
    "model.text",
    "platform.host",
    "storage.weights",
    "surface.http",
)
_ENTRY = r"[a-z_][a-z0-9_]*:[a-z_][a-z0-9_]*"
_PACKAGE = r"[a-z_][a-z0-9_]*"


@attrs.frozen
class Constraint:
    """Targets a plugin works on; an empty list means any."""

    os: tuple[str, ...] = ()
    arch: tuple[str, ...] = ()
    isa: tuple[str, ...] = ()


@attrs.frozen
class RuntimePart:
    """What runs in the worker. wheels: names among the pins. host_bytes: memory it costs at ready."""

    package: str
    entry: str
    wheels: tuple[str, ...] = ()
    host_bytes: int = 0


@attrs.frozen
class BuildPart:
    """What runs in the build."""

    package: str
    entry: str


@attrs.frozen
class Permissions:
    """What the plugin may reach in the worker."""

    network: Literal["none", "listen"] = "none"
    devices: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()


@attrs.frozen
class Kernel:
    """One op x weight format x layout that a pack runs; the kernel pack's plugin.toml explains each key."""

    op: str
    weight: str
    layout: str
    activation: str
    isa: tuple[str, ...]
    source: str
    template: str
    constants: tuple[str, ...]
    precision: str
    reference: str = ""
    multiple: dict[str, int] = attrs.field(factory=dict)
    scratch: dict[str, int] = attrs.field(factory=dict)


@attrs.frozen
class Activation:
    """A private activation format: bytes of each group of values."""

    name: str
    group: int
    bytes_per_group: int


@attrs.frozen
class Layout:
    """A weight layout: rows that are stored side by side."""

    name: str
    rows: int


@attrs.frozen
class Report:
    """A kernel pack's capability report."""

    kernel: tuple[Kernel, ...] = ()
    activation: tuple[Activation, ...] = ()
    layout: tuple[Layout, ...] = ()


@attrs.frozen
class Manifest:
    """One plugin.toml."""

    id: str
    version: str
    kind: Kind
    abi: int
    summary: str
    provides: dict[str, str]
    requires: dict[str, str] = attrs.field(factory=dict)
    target: Constraint = Constraint()
    runtime: RuntimePart | None = None
    build: BuildPart | None = None
    permissions: Permissions = Permissions()
    report: Report = Report()


@attrs.frozen
class Catalog:
    """root: the source tree. sha256: over every manifest's canonical form."""

    root: Path
    plugins: tuple[Manifest, ...]
    sha256: str

    def find(self, identity: str) -> Manifest | None:
        """The plugin with this id."""
        return next((plugin for plugin in self.plugins if plugin.id == identity), None)


def load(root: Path) -> Catalog:
    """Read plugins/*/*/plugin.toml under `root`; raises ResolutionError naming file and line of the first bad one."""
    plugins = tuple(_read(root, path) for path in sorted(root.glob("plugins/*/*/plugin.toml")))
    if not plugins:
        raise ResolutionError(
            "no plugins found", where=str(root / "plugins"), fix="run pih from a complete source tree"
        )
    canonical = json.dumps([unstructure(plugin) for plugin in plugins], sort_keys=True, separators=(",", ":"))
    return Catalog(root=root, plugins=plugins, sha256=hashlib.sha256(canonical.encode()).hexdigest())


def _read(root: Path, path: Path) -> Manifest:
    where = path.relative_to(root).as_posix()
    try:
        text = path.read_text()
        data = tomllib.loads(text)
    except (OSError, ValueError, RecursionError) as problem:
        raise ResolutionError(
            f"not TOML: {problem}", where=where, fix="correct the file, or remove the plugin"
        ) from problem
    lines = key_lines(text)
    try:
        manifest = structure(data, Manifest)
        _check(manifest, f"{path.parent.parent.name}/{path.parent.name}")
    except StructureError as failure:
        first = failure.problems[0]
        raise _refused(where, lines, first.path, first.what, first.fix) from failure
    except RefusedError as refused:
        raise _refused(where, lines, tuple(refused.key.split("|")), refused.what, refused.fix) from refused
    return manifest


def _refused(where: str, lines: dict[Keys, int], keys: Keys, what: str, fix: str) -> ResolutionError:
    return ResolutionError(f"{dotted(keys)}: {what}", where=f"{where}:{line_of(lines, keys)}", fix=fix)


def _check(manifest: Manifest, folder: str) -> None:
    """What types cannot say; the key of each refusal has '|' between its parts, as capability names hold dots."""
    if manifest.id != folder:
        raise RefusedError("id", f"{show(manifest.id)} lies in plugins/{folder}", f'write id = "{folder}"')
    if manifest.kind != folder.split("/", maxsplit=1)[0]:
        raise RefusedError("kind", f"{show(manifest.kind)} lies in plugins/{folder}", "move it to its kind's folder")
    if manifest.abi != ABI:
        raise RefusedError(
            "abi", f"ABI {manifest.abi} is not this PIH's ABI {ABI}", "use the plugin's release for this PIH"
        )
    _check_version("version", manifest.version)
    for capability, version in manifest.provides.items():
        _check_capability("provides", capability)
        _check_version(f"provides|{capability}", version)
    for capability, specifier in manifest.requires.items():
        _check_capability("requires", capability)
        try:
            SpecifierSet(specifier)
        except InvalidSpecifier:
            raise RefusedError(
                f"requires|{capability}", f"{show(specifier)} is not a version specifier", 'write it like ">=1.0,<2"'
            ) from None
    for half, part in (("runtime", manifest.runtime), ("build", manifest.build)):
        if part is not None:
            _check_form(f"{half}|package", part.package, _PACKAGE, "pih_backend_cpu")
            _check_form(f"{half}|entry", part.entry, _ENTRY, "pih_backend_cpu:start")
    for kernel in manifest.report.kernel:
        if kernel.op not in OPS:
            raise RefusedError("report|kernel", *choice_problem(kernel.op, OPS))


def _check_capability(table: str, capability: str) -> None:
    if capability not in CAPABILITIES:
        raise RefusedError(f"{table}|{capability}", *choice_problem(capability, CAPABILITIES))


def _check_version(key: str, version: str) -> None:
    try:
        Version(version)
    except InvalidVersion:
        raise RefusedError(key, f"{show(version)} is not a version", 'write it like "1.0"') from None


def _check_form(key: str, value: str, pattern: str, example: str) -> None:
    if not re.fullmatch(pattern, value):
        raise RefusedError(key, f"{show(value)} is not allowed", f'write it like "{example}"')
