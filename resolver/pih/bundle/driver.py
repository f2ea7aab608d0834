"""What a worker without a container engine is given of a family of devices: nodes, and the driver's own libraries."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

import attrs
from packaging.version import Version

from pih_runtime.errors import WorkerError
from pih_steps.devices import FAMILIES, FOLDER

# ldconfig's words for a library that this processor's programs load
_KINDS = {"x86_64": "libc6,x86-64", "aarch64": "libc6,AArch64"}


@attrs.frozen
class Driver:
    """nodes: of this host. libraries: (file of this host, its place in the worker's root)."""

    nodes: tuple[str, ...]
    libraries: tuple[tuple[Path, str], ...]

    @property
    def folders(self) -> tuple[str, ...]:
        """Where the loader finds the libraries on this host."""
        return tuple(dict.fromkeys(str(path.parent) for path, _ in self.libraries))


def of_host(families: Iterable[str]) -> Driver:
    """What this host has of these families; WorkerError where a driver's library is missing.

    That there is a device, and the right one, is for the driver to say, once the worker asks it.
    """
    nodes: list[str] = []
    libraries: list[tuple[Path, str]] = []
    for family in families:
        nodes += sorted(str(path) for pattern in FAMILIES[family].nodes for path in Path("/").glob(pattern[1:]))
        for name in FAMILIES[family].libraries:
            path = library(name)
            if path is None:
                raise WorkerError(
                    f"the bundle runs on {family}, and this host has no {name}",
                    fix="install the device's driver, or run on a host that has it; see pih doctor",
                )
            if not path.exists():
                raise WorkerError(
                    f"this host's loader finds {name} at {path}, and nothing is there",
                    fix="ldconfig, as root, makes its cache anew",
                )
            libraries.append((path, f"{FOLDER}/{name}"))
    return Driver(tuple(nodes), tuple(libraries))


def check(families: Iterable[str], oldest: str) -> None:
    """Raises WorkerError where this host's driver is older than that; one that cannot be read may be any."""
    for family in families:
        has = version(family)
        if has and oldest and Version(has) < Version(oldest):
            raise WorkerError(
                f"the bundle is for driver {oldest} or newer, and this host has {has}",
                where=FAMILIES[family].version[0],
                fix="install a newer driver, or lock the profile for this one: device.driver",
            )


def version(family: str) -> str:
    """Of this host's driver, as its kernel module tells it; '' where it does not."""
    path, pattern = FAMILIES[family].version
    try:
        found = re.search(pattern, Path(path).read_text())
    except OSError:
        return ""
    return found[1] if found else ""


def library(name: str) -> Path | None:
    """Where the host's loader finds a library, by its cache."""
    program = shutil.which("ldconfig", path=f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin")
    if program is None:
        return None
    said = subprocess.run([program, "-p"], capture_output=True, text=True, check=False).stdout
    kind = _KINDS.get(platform.machine(), "libc6")
    found = re.search(rf"^\s*{re.escape(name)} \({re.escape(kind)}[^)]*\) => (/.*)$", said, re.MULTILINE)
    return Path(found[1]) if found else None
