"""What a bundle is made of, as SBOMs name it: a part for each component, with version, licence, package URL, digest.

All of it is the lock's word; what the lock does not say is NOASSERTION or left out, and never a guess.
"""

from __future__ import annotations

from collections.abc import Iterable

import attrs
from packageurl import PackageURL

from pih import licences
from pih.lock import Artifact, Lock
from pih.seal.intact import Read
from pih.spdx import NOASSERTION


@attrs.frozen
class Part:
    """A component of the image, or what one was made from.

    kind: of its artifact (deb, wheel, npm, hf, file, plugin), `own` for the source tree's, `data` for what a step made.
    sha256: of the archive that it came in, '' without. files: paths in the image, none for what lies outside.
    made_from: names of the parts that data was made from.
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
    words = licences.of_components(lock)
    parts = [attrs.evolve(_part(name, lock, known, words), files=tuple(paths)) for name, paths in by_name.items()]
    outside = {name for part in parts for name in part.made_from} - by_name.keys()
    return tuple(sorted([*parts, *(_artifact(known[name]) for name in outside)], key=lambda part: part.name))


def _part(name: str, lock: Lock, known: dict[str, Artifact], words: dict[str, str]) -> Part:
    if name in known:
        return _artifact(known[name])
    licence = words.get(name, NOASSERTION)
    plugin = next((plugin for plugin in lock.plugins if plugin.id == name), None)
    if plugin is not None:
        carrier = known.get(plugin.artifact)
        purl = _own(f"plugin/{plugin.id}", plugin.version)
        kind, digest = ("plugin", carrier.sha256) if carrier else ("own", "")
        return Part(name, plugin.version, kind, licence, purl, digest)
    if name in ("weights", "model"):
        sources = [known[source] for source in _sources(lock, name) if source in known]
        version = sources[0].version if sources else lock.pih
        made_from = tuple(source.name for source in sources)
        return Part(
            name, version, "data", licence, _own(f"{name}/{lock.profile.name}", version), "", made_from=made_from
        )
    return Part(name, lock.pih, "own", licence, _own(name, lock.pih), "")


def _sources(lock: Lock, name: str) -> tuple[str, ...]:
    """Names of the artifacts that the weights, or the other files of the model, are from."""
    files = {role: file for role, file in lock.model.items() if isinstance(file, dict)}
    weights = files.pop("weights", {})
    wanted = [weights] if name == "weights" or "tokenizer" not in files else []
    wanted += list(files.values()) if name == "model" else []
    return tuple(dict.fromkeys(str(file["artifact"]) for file in wanted if "artifact" in file))


def _own(name: str, version: str) -> str:
    return PackageURL("generic", "pih", name, version).to_string()


def _artifact(artifact: Artifact) -> Part:
    purl = artifact.purls[0] if artifact.purls else ""
    return Part(artifact.name, artifact.version, artifact.kind, artifact.licence, purl, artifact.sha256)
