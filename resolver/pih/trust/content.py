"""What a plugin outside the source tree consists of, as one archive: the same files, the same bytes.

Folder, installed package and signed archive give the same archive, so one digest and one signature serve all three.
Only what the manifest names is in it: a README or tests beside the plugin move no lock.
"""

from __future__ import annotations

import hashlib
import io
import posixpath
import re
import sys
import tarfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import attrs

from pih import catalog
from pih.catalog import Manifest
from pih.reading import said
from pih.structure import show
from pih.tarball import TarFile
from pih_runtime.errors import PihError, ResolutionError
from pih_steps import tar
from pih_steps.devices import FAMILIES

MANIFEST = "plugin.toml"
PINS = "pins.json"  # wheels of its own, as plugins/pins.json lists those of PIH
KERNELS = "kernels"  # sources of a kernel pack
_MAX_BYTES = 256 << 20
_HOST_PATH = re.compile(r"(/[A-Za-z0-9._*+@-]+)+")
_LICENCES = ("LICENSE", "LICENCE", "COPYING", "NOTICE")


@attrs.frozen
class Content:
    """A plugin's archive. manifest, pins: as they are in there; pins b'' where it has none."""

    manifest: Manifest
    archive: bytes
    pins: bytes = b""

    @property
    def sha256(self) -> str:
        """The archive's digest, which the lock names and a signature covers."""
        return hashlib.sha256(self.archive).hexdigest()


def of_folder(folder: Path) -> Content:
    """The plugin in a folder; raises ResolutionError where it is not whole."""
    where = folder / MANIFEST
    try:
        raw = where.read_bytes()
        manifest = catalog.parse(raw, str(where))
        files = {MANIFEST: raw}
        for path in _parts(folder, manifest):
            files[path.relative_to(folder).as_posix()] = path.read_bytes()
            if sum(map(len, files.values())) > _MAX_BYTES:
                raise ResolutionError(
                    f"more than {_MAX_BYTES >> 20} MiB", where=str(folder), fix="deliver data as a wheel"
                )
    except OSError as problem:
        raise ResolutionError(
            f"cannot read: {problem.strerror}", where=problem.filename or str(where), fix="name a plugin's folder"
        ) from problem
    _check_whole(manifest, files, str(folder))
    return Content(manifest, pack(files), files.get(PINS, b""))


def of_archive(path: Path) -> Content:
    """The plugin in an archive; raises ResolutionError where its bytes are not what packing its files gives."""
    try:
        if path.stat().st_size > 2 * _MAX_BYTES:
            raise ResolutionError(
                f"more than {2 * _MAX_BYTES >> 20} MiB", where=str(path), fix="name a plugin's archive"
            )
        raw = path.read_bytes()
        with TarFile.open(fileobj=io.BytesIO(raw), mode="r:") as archive:
            files = {item.name: _read(archive, item) for item in archive if item.isreg()}
    except (OSError, tarfile.TarError) as problem:
        raise ResolutionError(
            f"not a plugin's archive: {said(problem)}", where=str(path), fix="pack it again"
        ) from problem
    manifest = catalog.parse(files.get(MANIFEST, b""), f"{path}#{MANIFEST}")
    _check_whole(manifest, files, str(path))
    if _packed(files) != raw:
        raise ResolutionError(
            "not an archive as `pih catalog sign` packs it: entries, order or headers differ",
            where=str(path),
            fix="have its publisher pack it again: pih catalog sign",
        )
    return Content(manifest, raw, files.get(PINS, b""))


def pack(files: Mapping[str, bytes]) -> bytes:
    """The canonical archive of these files, by their paths."""
    sink = io.BytesIO()
    tar.write(sink, [tar.Entry(path, content) for path, content in files.items()])
    return sink.getvalue()


def _packed(files: Mapping[str, bytes]) -> bytes:
    try:
        return pack(files)
    except PihError:
        return b""


def _read(archive: tarfile.TarFile, item: tarfile.TarInfo) -> bytes:
    content = archive.extractfile(item)
    return content.read() if content is not None else b""


def _parts(folder: Path, manifest: Manifest) -> Iterator[Path]:
    """The files beside the manifest that it names, its pins, and licences; links are followed, bytecode is left out."""
    named = {part.package for part in (manifest.runtime, manifest.build) if part is not None}
    if manifest.kind == "kernels":
        named.add(KERNELS)
    for name in sorted(named):
        for path in sorted((folder / name).rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts and path.suffix != ".pyc":
                yield path
    for path in sorted(folder.iterdir()):
        if path.is_file() and (path.name == PINS or path.name.upper().startswith(_LICENCES)):
            yield path


def _check_whole(manifest: Manifest, files: Mapping[str, bytes], where: str) -> None:
    for part in (manifest.runtime, manifest.build):
        if part is None:
            continue
        if f"{part.package}/__init__.py" not in files:
            raise ResolutionError(
                f"{manifest.id} has no package {part.package}", where=where, fix=f"add {part.package}/__init__.py"
            )
        if part.package in sys.stdlib_module_names or part.package in ("pih", "pih_runtime", "pih_steps"):
            raise ResolutionError(
                f"{manifest.id} calls its package {part.package}, which is another's name",
                where=where,
                fix="rename the package, e.g. pih_" + manifest.id.replace("/", "_").replace("-", "_"),
            )
    devices = (name for name in manifest.permissions.devices if name not in FAMILIES)
    for path in (*devices, *manifest.permissions.paths):
        if not _HOST_PATH.fullmatch(path) or posixpath.normpath(path) != path:
            raise ResolutionError(
                f"{manifest.id} asks for {show(path)} of the host, which is no path",
                where=where,
                fix='write whole paths, with * where the name varies, e.g. "/dev/npu*", or a family of devices: '
                + ", ".join(FAMILIES),
            )
    if manifest.kind == "kernels" and not any(path.startswith(f"{KERNELS}/") for path in files):
        raise ResolutionError(f"{manifest.id} has no kernels", where=where, fix=f"put its sources in {KERNELS}/")
