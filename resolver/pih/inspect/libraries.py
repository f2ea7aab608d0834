"""Device code inside a bundle's shared libraries, by reading it: for which processors, and what the target loads of it.

The deployment's own pack is `device_code`'s; a library from elsewhere is made for many processors.
"""

from __future__ import annotations

import tarfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import attrs

from pih.bundle import archive
from pih.bundle import layout as layouts
from pih.inspect.bundle import File
from pih.inspect.opened import Opened, root_of
from pih.tarball import TarFile
from pih_runtime.errors import PihError, SealError, UsageError
from pih_steps import fatbin


@attrs.frozen
class Library:
    """size: bytes of device code in it. usable: of these, what a device of the target loads.

    processors: bytes by processor, as they lie in the file.
    """

    path: str
    component: str
    size: int
    usable: int
    processors: dict[str, int]


def libraries(held: Opened, path: Path) -> tuple[Library, ...]:
    """Every shared library of the bundle at `path` that has device code, the largest first."""
    device = held.lock.target.device
    if device is None or not device.sm:
        return ()
    sm = int(device.sm.removeprefix("sm_").rstrip("af"))
    wanted = {file.path: file for file in held.contents.files if ".so" in file.path.rpartition("/")[2]}
    read = (_library(wanted[name], data, sm) for name, data in _read(path, wanted.keys()))
    return tuple(sorted(filter(None, read), key=lambda row: (-row.size, row.path)))


def likely(held: Opened) -> tuple[File, ...]:
    """Libraries that may have device code, by their names alone: those of wheels that a plugin with a device brings."""
    wheels = {
        wheel
        for plugin in held.lock.plugins
        if plugin.permissions.devices and plugin.runtime is not None
        for wheel in plugin.runtime.wheels
    }
    files = (file for file in held.contents.files if file.component in wheels and not file.target)
    return tuple(file for file in files if ".so" in file.path.rpartition("/")[2])


def as_json(rows: Iterable[Library]) -> list[dict[str, Any]]:
    """The shape that scripts rely on."""
    return [attrs.asdict(row) for row in rows]


def _library(file: File, data: bytes, sm: int) -> Library | None:
    held = tuple(fatbin.containers(data))
    if not held:
        return None
    loaded = [entry.size for container in held if (entry := fatbin.usable(container, sm))]
    processors = fatbin.by_processor(held)
    return Library(file.path, file.component, sum(processors.values()), sum(loaded), processors)


def _read(path: Path, wanted: Iterable[str]) -> Iterator[tuple[str, bytes]]:
    """Path and bytes of the wanted files, of a bundle that lies here."""
    if root := root_of(path):
        for name in sorted(wanted):
            file = root / name.lstrip("/")
            try:
                if not file.is_symlink():
                    yield name, file.read_bytes()
            except OSError as problem:
                raise SealError(f"cannot be read: {problem.strerror}", where=str(file)) from problem
        return
    if not path.exists():
        raise UsageError(
            "libraries are read of a bundle that is a file or a folder", fix="podman save it, and name the archive"
        )
    with archive.unpacked(path) as folder:
        image = layouts.read(folder)
        for layer in image.layers:
            yield from _members(image, layer, wanted)


def _members(image: layouts.Layout, layer: layouts.Layer, wanted: Iterable[str]) -> Iterator[tuple[str, bytes]]:
    try:
        with layouts.archive(image, layer) as stream, TarFile.open(fileobj=stream, mode="r|", bufsize=1 << 20) as tar:
            for member in tar:
                name = f"/{member.name.removeprefix('./')}"
                content = tar.extractfile(member) if name in wanted and member.isreg() else None
                if content is not None:
                    yield name, content.read()
    except PihError:
        raise
    except (tarfile.TarError, EOFError, ValueError, OverflowError) as problem:
        raise SealError(f"layer {layer.digest} cannot be read: {problem}", where=str(image.path)) from problem
