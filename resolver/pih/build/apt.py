"""Debian packages: apt's own sources supply them, with apt's own downloader. Needs no root.

apt has verified the signed Release that its lists come from, so the digests it prints are the archive's.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from urllib.parse import quote, unquote

from pih.build import command, purl
from pih.lock import Artifact
from pih_runtime.errors import FetchError

_HELPER = "/usr/lib/apt/apt-helper"
_MISSING = "this host has no apt: put the .deb in a folder that PIH_MIRROR names, or `pih store add FILE`"
_NO_LISTS = "apt-get update"
# what apt says where it is not the archive that lacks something
_UNREACHED = re.compile(r"resolving|resolve|connect to|[Cc]onnection (failed|timed out|refused)|unreachable")
_URI = re.compile(r"'([^']+)' (\S+) (\d+) SHA256:([0-9a-f]{64})")


def fetch(
    wanted: purl.Purl, artifact: Artifact, folder: Path, environment: Mapping[str, str], advanced: Callable[[int], None]
) -> Path:
    """Download one .deb by its path in the pool, from the first of apt's sources that still has it."""
    path = quote(purl.qualifier(wanted, "path"))
    target = folder / "package.deb"
    refused = []
    for repository in repositories(folder, environment):
        try:
            arguments = [_HELPER, "download-file", repository + path, str(target), f"SHA256:{artifact.sha256}"]
            command.run("apt", arguments, folder, environment, missing=_MISSING, advanced=advanced)
        except FetchError as problem:
            refused.append(problem)
        else:
            return target
    try:
        exact = f"{wanted.name}:{wanted.qualifiers.get('arch', 'amd64')}={wanted.version}"
        command.run("apt", ["apt-get", "download", exact], folder, environment, missing=_MISSING, advanced=advanced)
    except FetchError as problem:
        if _UNREACHED.search(problem.what):
            raise FetchError(
                f"apt did not reach a source of {wanted.name} {wanted.version}; {problem.what}",
                fix="see to the network, or put the .deb in a folder that PIH_MIRROR names",
            ) from problem
        raise FetchError(
            f"no source of apt has {wanted.name} {wanted.version} any more; {problem.what}",
            fix="`pih lock --upgrade base` takes the archive's current versions; "
            "an old .deb can come from a folder that PIH_MIRROR names",
        ) from (refused or [problem])[-1]
    return command.only_file(folder, ".deb")


def pin_debs(
    names: Sequence[str], folder: Path, environment: Mapping[str, str], *, arch: str = "amd64"
) -> list[Artifact]:
    """The archive's current versions, in the order of `names`; nothing is downloaded. `folder`: a workspace."""
    pools = repositories(folder, environment)
    asked = [f"{name}:{arch}" for name in names]
    try:
        printed = command.run(
            "apt",
            ["apt-get", "download", "--print-uris", *asked],
            folder,
            environment,
            missing=_MISSING,
            advanced=lambda _: None,
        )
    except FetchError as problem:
        raise FetchError(problem.what, fix=_NO_LISTS) from problem
    found = {artifact.name: artifact for artifact in (_artifact(match, pools) for match in _URI.findall(printed))}
    missing = [name for name in names if name not in found]
    if missing:
        raise FetchError(f"apt knows no package {', '.join(missing)}", fix=_NO_LISTS)
    return [found[name] for name in names]


def repositories(folder: Path, environment: Mapping[str, str]) -> list[str]:
    """The base of each of apt's sources, as apt is configured, in its order."""
    arguments = ["apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages"]
    printed = command.run("apt", arguments, folder, environment, missing=_MISSING, advanced=lambda _: None)
    found = list(dict.fromkeys(line for line in printed.splitlines() if line))
    if not found:
        raise FetchError("apt has no package lists", fix=_NO_LISTS)
    return found


def _artifact(printed: tuple[str, str, str, str], pools: Sequence[str]) -> Artifact:
    uri, file_name, size, digest = printed
    pool = max((pool for pool in pools if uri.startswith(pool)), key=len, default="")
    if not pool:
        raise FetchError("apt names a package outside its sources", where=file_name, fix=_NO_LISTS)
    name, version, arch = unquote(file_name).removesuffix(".deb").split("_")
    qualifiers = {"arch": arch, "path": unquote(uri.removeprefix(pool))}
    purls = (purl.render("deb", name, version, qualifiers),)
    return Artifact(name, version, "deb", digest, int(size), purls, "NOASSERTION", ())
