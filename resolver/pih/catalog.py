"""The catalog: plugin.toml files, checked, as data. Those of the source tree; `trust` adds the ones from outside.

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

from pih.origin import Origin, Refused
from pih.sizes import MEMORY
from pih.structure import Path as Keys
from pih.structure import RefusedError, StructureError, choice_problem, dotted, show, structure, unstructure
from pih.toml_lines import key_lines, line_of, too_deep
from pih_runtime.contracts import ABI
from pih_runtime.errors import ResolutionError
from pih_runtime.ops import OPS

Kind = Literal[
    "platform", "storage", "backend", "kernels", "memory", "transport", "model", "execution", "surface", "health"
]
Mode = Literal["bf16", "f16", "f32", "f64", "exact"]
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
_MAX_BYTES = 1 << 20
_ID = r"[a-z]+/[a-z0-9]([a-z0-9-]{0,62}[a-z0-9])?"
_ENTRY = r"[a-z_][a-z0-9_]*:[a-z_][a-z0-9_]*"
_PACKAGE = r"[a-z_][a-z0-9_]*"
_MOST = 1 << 20  # bytes of a plugin.toml
_SETS = {"target": ("os", "arch", "isa", "sm"), "runtime": ("wheels",), "permissions": ("devices", "paths")}


@attrs.frozen
class Constraint:
    """Targets a plugin works on; what is empty means any.

    sm: of a GPU, like "sm_89". devices, device_memory ("16 GiB"), driver ("550.54"): the least that will do.
    """

    os: tuple[str, ...] = ()
    arch: tuple[str, ...] = ()
    isa: tuple[str, ...] = ()
    sm: tuple[str, ...] = ()
    devices: int = 0
    device_memory: str = ""
    driver: str = ""


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
    """One op x weight format x layout that a pack runs; the kernel pack's plugin.toml explains each key.

    template '': there is a scalar reference alone. mode: the least exact type that sums pass through.
    """

    op: str
    weight: str
    layout: str
    activation: str
    isa: tuple[str, ...]
    source: str
    template: str
    constants: tuple[str, ...]
    precision: str
    mode: Mode
    reference: str = ""
    multiple: dict[str, int] = attrs.field(factory=dict)
    reference_multiple: dict[str, int] = attrs.field(factory=dict)
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
class Tested:
    """A row of a plugin's version matrix: this version of it works with these versions of PIH and this ABI."""

    version: str
    pih: str
    abi: int


@attrs.frozen
class Manifest:
    """One plugin.toml. tested: its version matrix, with a row for each release; needed outside the source tree.

    requires: capabilities that must be served. optional: capabilities that must be of these versions where the
    deployment has them anyway; the plugin starts after their providers. conflicts: plugins, by id, that it cannot
    stand beside. yanked: why no new lock may choose this version.
    """

    id: str
    version: str
    kind: Kind
    abi: int
    summary: str
    provides: dict[str, str]
    requires: dict[str, str] = attrs.field(factory=dict)
    optional: dict[str, str] = attrs.field(factory=dict)
    conflicts: dict[str, str] = attrs.field(factory=dict)
    yanked: str = ""
    target: Constraint = Constraint()
    runtime: RuntimePart | None = None
    build: BuildPart | None = None
    permissions: Permissions = Permissions()
    report: Report = Report()
    tested: tuple[Tested, ...] = ()


@attrs.frozen
class Catalog:
    """root: the source tree.

    origins: of the plugins that are not the source tree's own, by id and version.
    """

    root: Path
    plugins: tuple[Manifest, ...]
    origins: dict[tuple[str, str], Origin] = attrs.field(factory=dict)
    refused: tuple[Refused, ...] = ()

    def origin(self, plugin: Manifest) -> Origin | None:
        """Where a plugin comes from; None for the source tree's own."""
        return self.origins.get((plugin.id, plugin.version))

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
    return Catalog(root=root, plugins=plugins)


def fingerprint(plugin: Manifest) -> str:
    """Sha256 of what a manifest decides: its summary, the order of keys and that of sets do not matter."""
    data = unstructure(plugin)
    for key in ("summary", "yanked", "tested"):
        del data[key]
    for table, keys in _SETS.items():
        if data[table] is not None:
            data[table] |= {key: sorted(data[table][key]) for key in keys}
    canonical = json.dumps(data, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()


def _read(root: Path, path: Path) -> Manifest:
    where = path.relative_to(root).as_posix()
    try:
        raw = path.read_bytes()
    except OSError as problem:
        raise ResolutionError(f"cannot read: {problem.strerror}", where=where, fix="restore the plugin") from problem
    manifest = parse(raw, where)
    folder = f"{path.parent.parent.name}/{path.parent.name}"
    problems = {
        "id": (
            "" if manifest.id == folder else f"{show(manifest.id)} lies in plugins/{folder}",
            f'write id = "{folder}"',
        ),
        "abi": (abi_problem(manifest.abi), "use the plugin's release for this PIH"),
    }
    for key, (what, fix) in problems.items():
        if what:
            raise _refused(where, key_lines(raw.decode()), (key,), what, fix)
    return manifest


def abi_problem(abi: int) -> str:
    """Why this PIH cannot load a plugin of that ABI, or ''."""
    return "" if abi == ABI else f"ABI {abi} is not this PIH's ABI {ABI}"


def parse(raw: bytes, where: str) -> Manifest:
    """A plugin.toml, checked; raises ResolutionError naming the line. Whether its ABI fits is the caller's question."""
    if len(raw) > _MAX_BYTES:
        raise ResolutionError(f"{len(raw)} bytes is too large for a plugin.toml", where=where, fix="remove the plugin")
    if len(raw) > _MOST:
        raise ResolutionError(f"more than {_MOST} bytes are too many", where=where, fix="remove the plugin")
    try:
        text = raw.decode()
        if too_deep(text):
            raise RecursionError("nested too deeply")
        data = tomllib.loads(text)
    except (ValueError, RecursionError) as problem:
        raise ResolutionError(
            f"not TOML: {problem}", where=where, fix="correct the file, or remove the plugin"
        ) from problem
    lines = key_lines(text)
    try:
        manifest = structure(data, Manifest)
        _check(manifest)
    except StructureError as failure:
        first = failure.problems[0]
        raise _refused(where, lines, first.path, first.what, first.fix) from failure
    except RefusedError as refused:
        raise _refused(where, lines, tuple(refused.key.split("|")), refused.what, refused.fix) from refused
    return manifest


def _refused(where: str, lines: dict[Keys, int], keys: Keys, what: str, fix: str) -> ResolutionError:
    return ResolutionError(f"{dotted(keys)}: {what}", where=f"{where}:{line_of(lines, keys)}", fix=fix)


def _check(manifest: Manifest) -> None:
    """What types cannot say; the key of each refusal has '|' between its parts, as capability names hold dots."""
    _check_form("id", manifest.id, _ID, "backend/npu")
    if manifest.kind != manifest.id.split("/", maxsplit=1)[0]:
        raise RefusedError("kind", f"{show(manifest.kind)} is not the kind in {show(manifest.id)}", "let them agree")
    _check_version("version", manifest.version)
    for capability, version in manifest.provides.items():
        _check_capability("provides", capability)
        _check_version(f"provides|{capability}", version)
    for table, needs in (("requires", manifest.requires), ("optional", manifest.optional)):
        for capability, specifier in needs.items():
            _check_capability(table, capability)
            _check_specifier(f"{table}|{capability}", specifier)
    for identity, specifier in manifest.conflicts.items():
        _check_form(f"conflicts|{identity}", identity, _ID, "backend/torch")
        _check_specifier(f"conflicts|{identity}", specifier)
    if manifest.target.device_memory:
        _check_form("target|device_memory", manifest.target.device_memory, MEMORY, "16 GiB")
    if manifest.target.driver:
        _check_version("target|driver", manifest.target.driver)
    for row in manifest.tested:
        _check_version("tested|version", row.version)
        _check_specifier("tested|pih", row.pih)
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


def _check_specifier(key: str, specifier: str) -> None:
    try:
        SpecifierSet(specifier)
    except InvalidSpecifier:
        raise RefusedError(key, f"{show(specifier)} is not a version specifier", 'write it like ">=1.0,<2"') from None


def _check_form(key: str, value: str, pattern: str, example: str) -> None:
    if not re.fullmatch(pattern, value):
        raise RefusedError(key, f"{show(value)} is not allowed", f'write it like "{example}"')
