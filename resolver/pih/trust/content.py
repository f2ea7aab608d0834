"""What a plugin outside the source tree consists of, as one archive: the same files, the same bytes.

Folder, installed package and signed archive give the same archive, so one digest and one signature serve all three.
Only what the manifest names is in it: a README or tests beside the plugin move no lock.
"""

from __future__ import annotations

import hashlib
import io
import os
import posixpath
import re
import sys
import tarfile
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path

import attrs

from pih import catalog
from pih.catalog import Manifest
from pih.reading import read_at_most, said
from pih.structure import show
from pih.tarball import TarFile
from pih_runtime.errors import PihError, ResolutionError
from pih_steps import tar
from pih_steps.devices import FAMILIES
from pih_steps.reach import ALWAYS, given, hides

MANIFEST = "plugin.toml"
PINS = "pins.json"  # wheels of its own, as plugins/pins.json lists those of PIH
KERNELS = "kernels"  # sources of a kernel pack
_MAX_BYTES = 256 << 20
MOST = 2 * _MAX_BYTES  # of an archive
_MAX_FILES = 10_000
_MAX_PINS = 4 << 20
_HOST_PATH = re.compile(r"(/[A-Za-z0-9._*+@-]+)+")
_LICENCES = ("LICENSE", "LICENCE", "COPYING", "NOTICE")


@attrs.frozen
class Content:
    """What a plugin's archive holds. manifest, pins: as they are in there; pins b'' where it has none.

    sha256, size: of the archive; the lock names them, and a signature covers the digest.
    """

    manifest: Manifest
    sha256: str
    size: int
    pins: bytes


@attrs.frozen
class Packed:
    """A plugin's archive with its content; what only looks keeps the content alone, as archives may be large."""

    content: Content
    archive: bytes


def of_folder(folder: Path) -> Packed:
    """The plugin in a folder; raises ResolutionError where it is not whole."""
    manifest = manifest_of(folder)
    files: dict[str, bytes] = {}
    left = _MAX_BYTES
    try:
        parts = [folder / MANIFEST, *_parts(folder, manifest)]
    except OSError as problem:
        raise _unreadable(folder, problem) from problem
    for path in parts:
        raw = files[path.relative_to(folder).as_posix()] = _plain(folder, path, left)
        left -= len(raw)
    _check_whole(manifest, files, str(folder))
    try:
        archive = pack(files)
    except PihError as problem:
        raise ResolutionError(problem.what, where=str(folder), fix=problem.fix) from problem
    return _with_content(manifest, files, archive)


def manifest_of(folder: Path) -> Manifest:
    """What a plugin's folder says of itself, whether or not the rest of it is whole; raises ResolutionError."""
    where = folder / MANIFEST
    return catalog.parse(_plain(folder, where, catalog.MAX_BYTES), str(where))


def of_archive(path: Path) -> Packed:
    """The plugin in an archive; raises ResolutionError where its bytes are not what packing its files gives."""
    try:
        raw = read_at_most(path, MOST)
        with TarFile.open(fileobj=io.BytesIO(raw), mode="r:") as archive:
            files = {item.name: _read(archive, item) for item in archive if item.isreg()}
    except (OSError, ValueError, tarfile.TarError) as problem:
        raise ResolutionError(
            f"not a plugin's archive: {said(problem)}", where=str(path), fix="pack it again: pih catalog sign"
        ) from problem
    manifest = catalog.parse(files.get(MANIFEST, b""), f"{path}#{MANIFEST}")
    _check_whole(manifest, files, str(path))
    if _packed(files) != raw:
        raise ResolutionError(
            "not an archive as `pih catalog sign` packs it: entries, order or headers differ",
            where=str(path),
            fix="have its publisher pack it again: pih catalog sign",
        )
    return _with_content(manifest, files, raw)


def pack(files: Mapping[str, bytes]) -> bytes:
    """The canonical archive of these files, by their paths."""
    sink = io.BytesIO()
    tar.write(sink, [tar.Entry(path, content) for path, content in files.items()])
    return sink.getvalue()


def _with_content(manifest: Manifest, files: Mapping[str, bytes], archive: bytes) -> Packed:
    digest = hashlib.sha256(archive).hexdigest()
    return Packed(Content(manifest, digest, len(archive), files.get(PINS, b"")), archive)


def _packed(files: Mapping[str, bytes]) -> bytes:
    try:
        return pack(files)
    except PihError:
        return b""


def _read(archive: tarfile.TarFile, item: tarfile.TarInfo) -> bytes:
    content = archive.extractfile(item)
    return content.read() if content is not None else b""


def _parts(folder: Path, manifest: Manifest) -> Iterator[Path]:
    """The files beside the manifest that it names, its pins, and licences; bytecode is left out."""
    named = {part.package for part in (manifest.runtime, manifest.build) if part is not None}
    if manifest.kind == "kernels":
        named.add(KERNELS)
    for name in sorted(named):
        yield from _files(folder, folder / name)
    for path in sorted(folder.iterdir()):
        if path.name == PINS or (path.name.upper().startswith(_LICENCES) and not path.is_dir()):
            yield path


def _files(folder: Path, part: Path) -> Iterator[Path]:
    """All that is in a part of the folder but folders and bytecode; its reader refuses what is no plain file."""
    if not _within(folder, part):
        yield part
        return
    found = list(islice(part.rglob("*"), _MAX_FILES + 1))
    if len(found) > _MAX_FILES:
        raise ResolutionError(f"more than {_MAX_FILES} files", where=str(part), fix="deliver them as a wheel")
    for path in sorted(found):
        folder_of_its_own = path.is_dir() and not path.is_symlink()
        if not folder_of_its_own and "__pycache__" not in path.parts and path.suffix != ".pyc":
            yield path


def _plain(folder: Path, path: Path, most: int) -> bytes:
    """The bytes of a plain file of the folder; a link may lead to one that is in there too."""
    try:
        if not _within(folder, path):
            raise ValueError("a link leads out of the plugin's folder")
        if not path.name.isprintable():
            raise ValueError("its name is not UTF-8, or has letters that are not seen")
        return read_at_most(path, most)
    except (OSError, ValueError) as problem:
        raise _unreadable(path, problem) from problem


def _unreadable(path: Path, problem: OSError | ValueError) -> ResolutionError:
    fix = f"a plugin is a folder of plain files, {_MAX_BYTES >> 20} MiB in all; deliver data as a wheel"
    return ResolutionError(f"cannot read: {said(problem)}", where=str(path), fix=fix)


def _within(folder: Path, path: Path) -> bool:
    return Path(os.path.realpath(path)).is_relative_to(os.path.realpath(folder))


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
        module, _, name = part.entry.partition(":")
        mention = re.compile(rb"\b%b\b|\bimport \*|\b__getattr__\b" % name.encode())
        if module != part.package or not mention.search(files[f"{part.package}/__init__.py"]):
            raise ResolutionError(
                f"{manifest.id} is entered by {part.entry}, which {part.package}/__init__.py does not have",
                where=where,
                fix=f"define {name} there, or let entry name what is there: {part.package}:…",
            )
    devices = (name for name in manifest.permissions.devices if name not in FAMILIES)
    for path in (*devices, *manifest.permissions.paths):
        if not _HOST_PATH.fullmatch(path) or "**" in path or posixpath.normpath(path) != path:
            raise ResolutionError(
                f"{manifest.id} asks for {show(path)} of the host, which is no path",
                where=where,
                fix='write whole paths, with * where the name varies, e.g. "/dev/npu*", or a family of devices: '
                + ", ".join(FAMILIES),
            )
    for path in manifest.permissions.paths:
        hidden = next((own for own in ALWAYS if hides(path, own)), "")
        if hidden and not given(path):
            raise ResolutionError(
                f"{manifest.id} asks for {show(path)} of the host, where every image has {hidden} of its own",
                where=where,
                fix="ask for the files that the plugin opens, e.g. /usr/lib/x86_64-linux-gnu/libnpu.so.1",
            )
    if len(files.get(PINS, b"")) > _MAX_PINS:
        raise ResolutionError(
            f"{PINS} has more than {_MAX_PINS >> 20} MiB", where=where, fix="pin the wheels that the plugin imports"
        )
    if manifest.kind == "kernels" and not any(path.startswith(f"{KERNELS}/") for path in files):
        raise ResolutionError(f"{manifest.id} has no kernels", where=where, fix=f"put its sources in {KERNELS}/")
