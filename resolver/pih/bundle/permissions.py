"""What a bundle's lock lets its worker reach on the host; a sandbox or container gives that and nothing else."""

from __future__ import annotations

import itertools
import os
import re
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import attrs
from packaging.version import Version

from pih.bundle import layout
from pih.bundle.layout import Layout
from pih.catalog import variable_problem
from pih.lock import Permissions
from pih.reading import json_of
from pih_runtime.errors import SealError, WorkerError
from pih_steps.devices import FAMILIES
from pih_steps.reach import given

LOCK_FILE = "pih/lock.json"
_MOST_MATCHES = 1000  # of a pattern; no plugin's devices are as many
_PATH = re.compile(r"(/[A-Za-z0-9._*+@-]+)+")


@attrs.frozen
class Grants:
    """listen: whether a plugin may take a port. devices: nodes of this host. paths: of this host, to be read only.

    families: of devices, by the names that engines know; driver: the oldest that may serve them, '' for any.
    environment: variables of this process that are passed on; those that are not set are not among them.
    """

    listen: bool
    devices: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()
    environment: tuple[str, ...] = ()
    families: tuple[str, ...] = ()
    driver: str = ""

    def variables(self) -> dict[str, str]:
        """Those that are passed on, with their values here."""
        return {name: os.environ[name] for name in self.environment}


def of_image(image: Layout) -> Grants:
    """The permissions in the image's own lock, as they are on this host; raises WorkerError where one is missing."""
    where = f"{image.path}: /{LOCK_FILE}"
    try:
        lock = json_of(layout.member(image, LOCK_FILE))
        plugins, device = lock["plugins"], lock.get("target", {}).get("device")
        asked = [(str(plugin["id"]), plugin["permissions"]) for plugin in plugins]
        listen = any(permissions["network"] == "listen" for _, permissions in asked)
        devices = _found(asked, "devices", where)
        paths = _found(asked, "paths", where)
        environment = _passed(asked, where)
        oldest = str(device["driver"]) if device else ""
        Version(oldest or "0")
    except (KeyError, TypeError, ValueError, AttributeError) as problem:
        raise SealError(
            "not a lock: plugins without id or permissions, or a driver that is no version",
            where=where,
            fix="build the bundle again",
        ) from problem
    listed = [str(line.get("path")) for line in layout.bundle_file(image).get("files", ())] if paths else []
    for path in paths:
        inside = next((name for name in listed if name == path or name.startswith(path + "/")), "")
        if inside:
            raise SealError(
                f"a plugin asks for {path} of the host, where the bundle has {inside} of its own",
                where=where,
                fix="leave the plugin out, or have its author ask for less",
            )
    families = families_of(name for _, item in asked for name in item["devices"])
    return Grants(listen, devices, paths, environment, families, oldest)


def asked_of(permissions: Iterable[Permissions]) -> Grants:
    """What a lock's plugins ask of any host, for a command line that may run on another one.

    A pattern of several paths is left out: which of them there are is for that host to say.
    """
    asked = list(permissions)
    named = sorted({name for item in asked for name in item.devices if not given(name) and "*" not in name})
    return Grants(
        listen=any(item.network == "listen" for item in asked),
        devices=tuple(name for name in named if name not in FAMILIES),
        paths=tuple(sorted({path for item in asked for path in item.paths if not given(path) and "*" not in path})),
        environment=tuple(sorted({name for item in asked for name in item.environment})),
        families=families_of(named),
    )


def families_of(devices: Iterable[str]) -> tuple[str, ...]:
    """Those of a lock's devices that are families."""
    return tuple(sorted(set(devices) & FAMILIES.keys()))


def _found(asked: Iterable[tuple[str, dict[str, Any]]], what: str, where: str) -> tuple[str, ...]:
    """The host's paths that match what the plugins ask for, each with one at least."""
    found: set[str] = set()
    for plugin, permissions in asked:
        for pattern in permissions[what]:
            if given(pattern) or (what == "devices" and pattern in FAMILIES):
                continue
            check(plugin, pattern, where)
            matches = [str(path) for path in itertools.islice(Path("/").glob(pattern[1:]), _MOST_MATCHES + 1)]
            if len(matches) > _MOST_MATCHES:
                raise SealError(
                    f"{plugin} asks for {pattern}, which is more than {_MOST_MATCHES} things of this host",
                    where=where,
                    fix="leave the plugin out, or have its author ask for less",
                )
            if not matches:
                raise WorkerError(
                    f"{plugin} needs {pattern}, which this host has not",
                    fix="install its driver, or run on a host that has the device",
                )
            if what == "devices":
                _check_nodes(plugin, matches)
            found.update(matches)
    return tuple(sorted(found))


def _check_nodes(plugin: str, paths: Iterable[str]) -> None:
    for path in paths:
        mode = Path(path).stat().st_mode
        if not stat.S_ISCHR(mode) and not stat.S_ISBLK(mode):
            raise WorkerError(
                f"{plugin} asks for the device {path}, which is none",
                fix="install its driver, or have the plugin's author ask for the device's own node",
            )


def check(plugin: str, pattern: str, where: str) -> None:
    """Raises SealError for a pattern that is no absolute path of plain letters."""
    if not _PATH.fullmatch(pattern) or "**" in pattern or os.path.normpath(pattern) != pattern:
        raise SealError(f"{plugin} asks for {pattern!r}, which is no path", where=where, fix="leave it out")


def _passed(asked: Iterable[tuple[str, dict[str, Any]]], where: str) -> tuple[str, ...]:
    """The variables that plugins ask for and this process has."""
    names = {name: plugin for plugin, permissions in asked for name in permissions["environment"]}
    for name, plugin in names.items():
        check_variable(plugin, name, where)
    return tuple(sorted(name for name in names if name in os.environ))


def check_variable(plugin: str, name: str, where: str) -> None:
    """Raises SealError for a variable of the environment that no worker may be passed."""
    if problem := variable_problem(name):
        raise SealError(f"{plugin} asks for {name!r}, which {problem}", where=where, fix="leave the plugin out")
