"""What a bundle is made of, as SBOMs name it: a part for each component, with version, licence, package URL, digest.

All of it is the lock's word; what the lock does not say is NOASSERTION here, and never a guess.
"""

from __future__ import annotations

from collections.abc import Iterable

import attrs
from packageurl import PackageURL

from pih.inspect.bundle import checkpoint
from pih.lock import Artifact, Lock
from pih.seal.intact import Read

NOASSERTION = "NOASSERTION"
OWN_LICENCE = "Apache-2.0"


@attrs.frozen
class Part:
    """A component of the image, or what one was made from. sha256: of the archive it came in, '' without.

    files: paths in the image; none for what lies outside. made_from: names of parts. kind: deb, wheel, npm, hf, file,
    plugin, own (of the source tree) or data (weights, tokenizer).
    """

    name: str
    version: str
    kind: str
    licence: str
    purl: str
    sha256: str
    files: tuple[str, ...] = ()
    made_from: tuple[str, ...] = ()


def of(lock: Lock, files: Iterable[Read]) -> tuple[Part, ...]:
    """The parts of an image, by name; and the artifacts outside that its data was made from."""
    by_name: dict[str, list[str]] = {}
    for file in files:
        by_name.setdefault(file.component, []).append(file.path)
    known = {artifact.name: artifact for artifact in lock.artifacts}
    parts = [attrs.evolve(_part(name, lock, known), files=tuple(paths)) for name, paths in by_name.items()]
    outside = {name for part in parts for name in part.made_from} - by_name.keys()
    return tuple(sorted([*parts, *(_artifact(known[name]) for name in outside)], key=lambda part: part.name))


def _part(name: str, lock: Lock, known: dict[str, Artifact]) -> Part:
    if name in known:
        return _artifact(known[name])
    plugin = next((plugin for plugin in lock.plugins if plugin.id == name), None)
    if plugin is not None:
        carrier = known.get(plugin.artifact)
        purl = PackageURL("generic", "pih", f"plugin/{plugin.id}", plugin.version).to_string()
        licence = carrier.licence if carrier else OWN_LICENCE
        kind = "plugin" if carrier else "own"
        return Part(name, plugin.version, kind, licence, purl, carrier.sha256 if carrier else "")
    if name == "weights":
        return _data(name, lock, known)
    return Part(name, lock.pih, "own", OWN_LICENCE, PackageURL("generic", None, name, lock.pih).to_string(), "")


def _data(name: str, lock: Lock, known: dict[str, Artifact]) -> Part:
    """Made by a step from artifacts; where there are none it is made up by a step of the source tree."""
    wanted = [str(checkpoint(lock).get("artifact", ""))]
    sources = [known[item] for item in wanted if item in known]
    licence = " AND ".join(dict.fromkeys(source.licence for source in sources)) or OWN_LICENCE
    version = sources[0].version if sources else lock.pih
    purl = PackageURL("generic", "pih", f"{name}/{lock.profile.name}", version).to_string()
    return Part(name, version, "data", licence, purl, "", made_from=tuple(source.name for source in sources))


def _artifact(artifact: Artifact) -> Part:
    purl = artifact.purls[0] if artifact.purls else ""
    return Part(artifact.name, artifact.version, artifact.kind, artifact.licence, purl, artifact.sha256)
