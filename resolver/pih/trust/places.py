"""Where plugins from outside lie: a folder or archive by its path, an installed package, a catalog of the keyring.

A place, as a package URL's qualifiers hold it, says how to find a plugin again on any host that has the same:

    path=../examples/npu                       relative to the lock
    package=pih-npu  file=pih_npu/backend      in an installed Python package
    catalog=vendor   file=npu-0.1.0.tar        in a catalog that the keyring names
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from importlib import metadata
from importlib.machinery import PathFinder
from pathlib import Path, PurePosixPath

import attrs

from pih.names import normalized
from pih.reading import said
from pih.trust import content, keyring
from pih.trust.content import MANIFEST, Packed
from pih_runtime.errors import ResolutionError

GROUP = "pih.plugins"


@attrs.frozen
class Installed:
    """An entry point of an installed package. file: its module as a path; folder: where that lies, None if nowhere."""

    package: str
    name: str
    file: str
    folder: Path | None


def packed(place: Mapping[str, str], folder: Path, environment: Mapping[str, str]) -> Packed | None:
    """The plugin at a place; None where nothing is there. folder: the lock's own."""
    path = _found(place, folder, environment)
    return of_path(path) if path is not None and path.exists() else None


def of_path(path: Path) -> Packed:
    """The plugin in a folder or an archive."""
    return content.of_folder(path) if os.path.isdir(path) else content.of_archive(path)  # noqa: PTH112 - raises nothing


def below(folder: Path) -> list[Path]:
    """The plugins' folders in a folder: itself, or those in it."""
    if is_plugin(folder):
        return [folder]
    try:
        return sorted(filter(is_plugin, folder.iterdir()))
    except OSError as problem:
        raise ResolutionError(
            f"cannot read: {said(problem)}", where=str(folder), fix="name a plugin's folder, or one of such folders"
        ) from problem


def is_plugin(folder: Path) -> bool:
    """Whether this is meant to be a plugin's folder; reading it says whether it is one."""
    return os.path.lexists(folder / MANIFEST)


def installed() -> Iterator[Installed]:
    """What the installed packages declare, none of it imported."""
    for entry in sorted(metadata.entry_points(group=GROUP), key=lambda entry: (entry.name, entry.value)):
        if entry.dist is None:
            continue
        file = entry.module.replace(".", "/")
        direct = Path(str(entry.dist.locate_file(file)))
        folder = direct if direct.is_dir() else _linked(file)
        yield Installed(entry.dist.name, entry.name, file, folder)


def same(first: Mapping[str, str], second: Mapping[str, str]) -> bool:
    """Whether two places are one, however they are written: `./npu` and `npu/`, `pih_npu` and `pih-npu`."""
    return _plain(first) == _plain(second)


def _plain(place: Mapping[str, str]) -> dict[str, str]:
    paths = {key: str(PurePosixPath(place[key])) for key in ("path", "file") if key in place}
    return {**place, **paths, **({"package": normalized(place["package"])} if "package" in place else {})}


def _linked(file: str) -> Path | None:
    """A package that was installed in place (`pip install -e`): its top folder is on the path, wherever it lies."""
    top, _, rest = file.partition("/")
    spec = PathFinder.find_spec(top)
    for location in (spec.submodule_search_locations or ()) if spec else ():
        if Path(location, rest).is_dir():
            return Path(location, rest)
    return None


def _found(place: Mapping[str, str], folder: Path, environment: Mapping[str, str]) -> Path | None:
    if "path" in place:
        return folder / place["path"]
    file = place.get("file", "")
    if "package" in place:
        package = normalized(place["package"])
        return next(
            (item.folder for item in installed() if (normalized(item.package), item.file) == (package, file)), None
        )
    known = keyring.load(environment).catalogs
    return next((Path(item.path, file) for item in known if item.name == place.get("catalog")), None)
