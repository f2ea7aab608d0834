"""A place on the command line to write to."""

from __future__ import annotations

import os
from pathlib import Path

import click

from pih.build.store import FOLDERS, default_root
from pih.bundle.layout import BUNDLE_FILE
from pih.cli import _path
from pih_runtime.errors import UsageError


def free(path: Path) -> Path:
    """The path; raises UsageError where it is in the store or in a bundle: neither would be what it was."""
    for folder in path.resolve().parents:
        installed = folder != folder.parent and (folder / BUNDLE_FILE).is_file()
        if installed or (folder / "oci-layout").is_file():
            what = f"is inside of the bundle {folder}, which would not be whole any more"
            raise UsageError(what, where=str(path), fix="name another place")
    try:
        root = default_root(os.environ).resolve()
    except UsageError:  # no home, and so no store
        return path
    if any(path.resolve().is_relative_to(root / name) for name in FOLDERS):
        raise UsageError("is in the store, where nothing is changed", where=str(path), fix="name another place")
    return path


class Place(_path.Path):
    """Not in the store, nor in a bundle."""

    def __init__(self, *, dir_okay: bool = True, file_okay: bool = True) -> None:
        super().__init__(path_type=Path, dir_okay=dir_okay, file_okay=file_okay)

    def convert(self, value: str | os.PathLike[str], param: click.Parameter | None, ctx: click.Context | None) -> Path:
        """Raises click's error of a wrong value, as `free`."""
        return free(Path(os.fsdecode(super().convert(value, param, ctx))))
