"""Reading a plugin.toml: checked against the classes, then against what types cannot say."""

from __future__ import annotations

import hashlib
import json
import re
from typing import get_args

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion, Version

from pih.catalog import report_rules
from pih.catalog.data import Kind, Manifest
from pih.reading import toml_of
from pih.sizes import MEMORY
from pih.spdx import NOASSERTION, expression
from pih.structure import Path as Keys
from pih.structure import RefusedError, StructureError, choice_problem, dotted, nearest, show, structure, unstructure
from pih.toml_lines import key_lines, line_of
from pih_runtime.abi import ABI
from pih_runtime.errors import ResolutionError

CAPABILITIES = (
    "backend.device",
    "backend.graphs",
    "execution.engine",
    "health.probe",
    "kernels.cubin",
    "kernels.pack",
    "memory.pages",
    "model.decoder",
    "model.text",
    "platform.host",
    "storage.weights",
    "surface.http",
    "transport.collectives",
)
_RESERVED = (*get_args(Kind), "pih")  # first words of names that no vendor may take
MAX_BYTES = 1 << 20
_ID = r"[a-z]+/[a-z0-9]([a-z0-9-]{0,62}[a-z0-9])?"
_ENTRY = r"[a-z_][a-z0-9_]*:[a-z_][a-z0-9_]*"
_PACKAGE = r"[a-z_][a-z0-9_]*"
_SETS = {
    "target": ("os", "arch", "isa", "sm"),
    "runtime": ("wheels", "libraries"),
    "permissions": ("devices", "paths", "environment"),
}
_VENDOR = r"[a-z][a-z0-9-]{0,62}(\.[a-z][a-z0-9_-]{0,62}){1,3}"
_VARIABLE = r"[A-Z][A-Z0-9_]{0,127}"
# What directs the loader, the C library, the interpreter or PIH itself is the image's to say.
_IMAGES_OWN = re.compile(r"(LD_|GLIBC_|GCONV_|MALLOC_|PYTHON|LC_|PIH_).*|PATH|HOME|LANG|LOCPATH|TMPDIR")


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


def precedence(version: str) -> tuple[bool, Version]:
    """What the preferred of several versions has the highest of: final releases come before pre-releases."""
    parsed = Version(version)
    return not parsed.is_prerelease, parsed


def abi_problem(abi: int) -> str:
    """Why this PIH cannot load a plugin of that ABI, or ''."""
    return "" if abi == ABI else f"ABI {abi} is not this PIH's ABI {ABI}"


def parse(raw: bytes, where: str) -> Manifest:
    """A plugin.toml, checked; raises ResolutionError naming the line. Whether its ABI fits is the caller's question."""
    if len(raw) > MAX_BYTES:
        raise ResolutionError(f"{len(raw)} bytes is too large for a plugin.toml", where=where, fix="remove the plugin")
    try:
        text = raw.decode()
        data = toml_of(text)
    except ValueError as problem:
        raise ResolutionError(
            f"not TOML: {problem}", where=where, fix="correct the file, or remove the plugin"
        ) from problem
    lines = key_lines(text)
    try:
        manifest = structure(data, Manifest)
        _check(manifest)
    except StructureError as failure:
        first = failure.problems[0]
        raise refused(where, lines, first.path, first.what, first.fix) from failure
    except RefusedError as failure:
        keys = tuple(int(part) if part.isdigit() else part for part in failure.key.split("|"))
        raise refused(where, lines, keys, failure.what, failure.fix) from failure
    return manifest


def refused(where: str, lines: dict[Keys, int], keys: Keys, what: str, fix: str) -> ResolutionError:
    """The error that names a key of a plugin.toml and its line."""
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
    if manifest.licence not in (NOASSERTION, expression(manifest.licence)):
        raise RefusedError("licence", f"{show(manifest.licence)} is no SPDX expression", 'write it like "Apache-2.0"')
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
    for path in manifest.permissions.devices:
        if path.startswith("/") and not path.startswith("/dev/"):
            what = f"{show(path)} is a path of the host, which is no path below /dev"
            raise RefusedError("permissions|devices", what, 'write it like "/dev/npu*"; what is to be read is in paths')
    for name in manifest.permissions.environment:
        if problem := variable_problem(name):
            fix = 'name a variable of the plugin\'s own, e.g. "NPU_VISIBLE_DEVICES"'
            raise RefusedError("permissions|environment", f"{show(name)} {problem}", fix)
    report_rules.check(manifest.report)


def variable_problem(name: str) -> str:
    """Why no plugin may be passed that environment variable, or ''."""
    if not re.fullmatch(_VARIABLE, name):
        return "is no name of a variable"
    return "is the image's own to set" if _IMAGES_OWN.fullmatch(name) else ""


def _check_capability(table: str, capability: str) -> None:
    """One of PIH's, or `vendor.thing`; a first word that is nearly a kind is a slip, not a vendor."""
    vendor = capability.partition(".")[0]
    if capability in CAPABILITIES or (re.fullmatch(_VENDOR, capability) and not nearest(vendor, _RESERVED, 0.8)):
        return
    what, fix = choice_problem(capability, CAPABILITIES)
    raise RefusedError(f"{table}|{capability}", what, f'{fix}; one of your own begins with your name: "acme.fabric"')


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
