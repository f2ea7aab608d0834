"""npm packages: npm itself is run, with the user's own registry and credentials."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from pih import spdx
from pih.build import command, purl
from pih.build.store import Store
from pih.lock import Artifact
from pih.reading import json_of
from pih_runtime.errors import FetchError

_MISSING = "install npm, or put the package in a folder that PIH_MIRROR names, or `pih store add FILE`"


def fetch(
    wanted: purl.Purl,
    artifact: Artifact,  # noqa: ARG001 - every source's signature
    folder: Path,
    environment: Mapping[str, str],
    advanced: Callable[[int], None],
) -> Path:
    """Download one package's archive."""
    _pack(f"{wanted.name}@{wanted.version}", folder, environment, advanced)
    return command.only_file(folder, ".tgz")


def pin_npm(requirement: str, store: Store, environment: Mapping[str, str]) -> Artifact:
    """The package that npm chooses for `requirement` (NAME@VERSION), downloaded into the store."""
    with store.workspace() as folder:
        _pack(requirement, folder, environment, lambda _: None)
        archive = command.only_file(folder, ".tgz")
        size = archive.stat().st_size
        digest = store.add_file(archive)
        name, version, licence = _manifest(archive)
    return Artifact(name, version, "npm", digest, size, (purl.render("npm", name, version),), licence, ())


def _pack(requirement: str, folder: Path, environment: Mapping[str, str], advanced: Callable[[int], None]) -> None:
    # No scripts: a package that is only data must not run code on the build host.
    arguments = ["npm", "pack", requirement, "--pack-destination", str(folder), "--ignore-scripts", "--loglevel=error"]
    command.run("npm", arguments, folder, environment, missing=_MISSING, advanced=advanced)


def _manifest(archive: Path) -> tuple[str, str, str]:
    from pih.tarball import TarFile

    with TarFile.open(archive, "r:gz") as tar:
        for member in tar:
            if member.isfile() and member.name.count("/") == 1 and member.name.endswith("/package.json"):
                stream = tar.extractfile(member)
                data = json_of(stream.read()) if stream else {}
                licence = data.get("license")
                found = spdx.expression(licence) if isinstance(licence, str) else spdx.NOASSERTION
                return str(data["name"]), str(data["version"]), found
    raise FetchError("the package has no package.json", where=archive.name)
