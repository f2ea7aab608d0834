"""The host's half of the suite: reads the manifest, compiles a pack where one is needed, and runs `probe`.

A plugin's code runs in a process of its own, which may crash or hang without harm.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pih import catalog, pins
from pih.catalog import Manifest
from pih.conformance import manifest as manifests
from pih.conformance import process
from pih.conformance.cases import Case, cases
from pih.conformance.process import Check
from pih.conformance.standins import Host
from pih.lock import Artifact
from pih.structure import unstructure
from pih.trust import content
from pih_runtime.errors import BuildError, ResolutionError

Bring = Callable[[Artifact], Path]
_RUNS_KERNELS = "backend/cpu"
_PACK = "kernels/cpu"
_LACKING = """import importlib.metadata, sys
here = {found.name.lower().replace("_", "-") for found in importlib.metadata.distributions()}
print(*(name for name in sys.argv[1:] if name not in here))
"""


def check(folder: Path, root: Path, bring: Bring, python: str = sys.executable) -> Iterator[Check]:
    """Every check for the plugin in `folder`, as it is made.

    root: the source tree. bring: gets an artifact, for the kernels' compiler. python: has the plugin's wheels.
    Raises UsageError where `python` cannot be started.
    """
    python = shutil.which(python) or python
    own = folder.resolve().is_relative_to(root / "plugins")
    try:
        manifest = _read(folder, own=own)
    except ResolutionError as problem:
        yield Check("manifest", "failed", str(problem))
        return
    yield Check("manifest", "passed")
    found = list(manifests.problems(manifest, folder, own=own))
    sources = folder / (manifest.runtime.package if manifest.runtime else "")
    if manifest.kind == "kernels":
        sources = root / manifest.id if own else folder / content.KERNELS
    found += manifests.sources(manifest, sources)
    yield Check("package", "failed" if found else "passed", "\n".join(found))
    if found:
        return
    if manifest.kind == "kernels":
        driver = _read(root / "plugins" / _RUNS_KERNELS, own=True)
        path = root / "plugins" / _RUNS_KERNELS
        yield from _probed(driver, path, root, manifest.report, (manifest, sources), bring, python)
    elif manifest.kind == "model":  # plans are for some pack's kernels
        yield from _probed(
            manifest, folder, root, _read(root / "plugins" / _PACK, own=True).report, None, bring, python
        )
    elif manifest.runtime is None:
        yield Check("lifecycle", "skipped", "nothing of it runs in a worker")
    elif "kernels.pack" in manifest.requires:
        pack = _read(root / "plugins" / _PACK, own=True)
        yield from _probed(manifest, folder, root, pack.report, (pack, root / _PACK), bring, python)
    else:
        yield from _probed(manifest, folder, root, manifest.report, None, bring, python)


def _read(folder: Path, *, own: bool) -> Manifest:
    return content.manifest_of(folder) if own else content.of_folder(folder).content.manifest


def _probed(
    manifest: Manifest, folder: Path, root: Path, report: catalog.Report, pack: tuple[Manifest, Path] | None,
    bring: Bring, python: str,
) -> Iterator[Check]:  # fmt: skip
    """Run the plugin's own process in a made-up bundle."""
    plain = unstructure(report)
    if reason := _out_of_reach(manifest):
        yield Check("lifecycle", "skipped", reason)
        return
    isa = _isa(plain)
    needed = manifest.kind in ("backend", "kernels")
    if needed and not plain["kernel"]:
        yield Check("report", "failed", "a backend without kernels.pack says in [[report.kernel]] what it runs")
        return
    if needed and not isa:
        yield Check("op", "skipped", "this machine has none of the report's ISAs")
        return
    with tempfile.TemporaryDirectory(prefix="pih-conformance-") as name:
        bundle = Path(name) / "pih"
        (bundle / "kernels").mkdir(parents=True)
        if pack is not None:
            try:
                _compile(pack, plain, isa, root, bring, bundle / "kernels" / "pack.so", Path(name) / "work")
            except BuildError as problem:
                yield Check("kernels compile", "failed", str(problem))
                return
            yield Check("kernels compile", "passed")
        runtime = manifest.runtime
        site = _wheels(runtime.wheels if runtime else (), root, bring, python, Path(name) / "site")
        spec = Path(name) / "spec.json"
        spec.write_text(
            json.dumps(
                {
                    "path": [str(folder.resolve()), *site],
                    "entry": runtime.entry if runtime else "",
                    "build": manifest.build.entry if manifest.build else "",
                    "provides": [*manifest.provides],
                    "requires": [*manifest.requires],
                    "kind": manifest.kind,
                    "report": plain,
                    "isa": isa or "x86-64-v3",
                    "root": str(bundle),
                    "host_bytes": runtime.host_bytes if runtime else 0,
                    "lifecycle": runtime is not None
                    and (pack is None or pack[0].id == _PACK or manifest.id != _RUNS_KERNELS),
                }
            )
        )
        yield from process.checks([python, "-P", "-B", "-m", "pih.conformance.probe", str(spec)], root)


def _out_of_reach(manifest: Manifest) -> str:
    """Why the suite cannot run the plugin here, '' where it can."""
    known = set(catalog.CAPABILITIES) - {"kernels.cubin"}  # code for a device is tried on one
    if strange := [name for name in manifest.requires if name not in known]:
        return f"it requires {', '.join(strange)}, for which the suite has no stand-in"
    if manifest.kind == "backend" and "backend.device" not in manifest.provides:
        return f"it provides {', '.join(manifest.provides)}, which is tried with the backend that uses it"
    if manifest.runtime and manifest.runtime.libraries:
        return f"it loads {', '.join(manifest.runtime.libraries)}, which a build takes out of its wheel"
    return ""


def _wheels(names: Sequence[str], root: Path, bring: Bring, python: str, site: Path) -> list[str]:
    """A folder with those of the plugin's wheels that the interpreter lacks and PIH pins; [] where it has them all."""
    if not names:
        return []
    lacking = process.told([python, "-I", "-c", _LACKING, *names])
    known = pins.load(root)
    named = [name for name in names if name.encode() in lacking]
    found = [artifact for name in named if (artifact := known.find("wheel", name)) is not None]
    for artifact in found:
        with zipfile.ZipFile(bring(artifact)) as wheel:
            wheel.extractall(site)
    return [str(site)] if found else []


def _isa(report: Mapping[str, Any]) -> str:
    """The first ISA of the report that this machine has."""
    here = Host().isa
    return next((isa for entry in report["kernel"] for isa in reversed(entry["isa"]) if isa in here), "")


def _compile(
    pack: tuple[Manifest, Path], report: Mapping[str, Any], isa: str, root: Path, bring: Bring, output: Path, work: Path
) -> None:
    from pih_steps import kernels

    ziglang = pins.load(root).find("wheel", "ziglang")
    assert ziglang is not None, "the release pins its compiler"
    bindings = {
        symbol: binding
        for case in cases(report, isa)
        if isinstance(case, Case)
        for symbol, binding in case.draft.bindings.items()
    }
    work.mkdir()
    kernels.unpack_zig(bring(ziglang), work)
    trees = {kernels.SHARED: root / kernels.SHARED, pack[0].id: pack[1]}
    kernels.compile_pack(work, trees, kernels.source(isa, bindings.values()), isa, output)
