"""The check of a bundle: the image, what is attached to it, and who vouches for it.

Each document of a seal is held against the image and its lock, not against how this version would write it; so what an
earlier or later version sealed is judged by what it says.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs

from pih.bundle import layout as layouts
from pih.reading import json_of
from pih.seal import dsse, intact, parts, provenance, referrers, sbom
from pih.seal.agreement import FIX
from pih.seal.dsse import Envelope
from pih.seal.intact import Image
from pih.seal.policy import Key, Policy
from pih_runtime.errors import SealError
from pih_steps.oci import canonical


@attrs.frozen
class Verified:
    """A bundle in which every byte is right. documents: type → bytes; envelopes: predicate type → statement.

    vouched: the keys of the policy that signed every statement; empty where no policy was given.
    """

    image: Image
    documents: dict[str, bytes]
    envelopes: dict[str, Envelope]
    vouched: tuple[Key, ...] = ()

    @property
    def signers(self) -> tuple[str, ...]:
        """Ids of the keys that say they signed every statement: a hint, unless the keys were given."""
        return dsse.named(self.envelopes.values())


def whole(path: Path) -> Verified:
    """Check that everything in a layout holds together, whoever made it. Raises SealError naming what does not."""
    image = intact.read(path)
    documents = referrers.read(image.layout)
    index = referrers.index(intact.entry(image), image.blob, documents)
    intact.check_folder(image, index, referrers.blobs(image.blob, documents))
    return Verified(image, documents, _statements(image, documents) if documents else {})


def kept(image: Image, where: str) -> Verified:
    """An image in a form that keeps no seal, such as an engine's store or an unpacked root. where: its name there."""
    return Verified(attrs.evolve(image, layout=attrs.evolve(image.layout, path=Path(where))), {}, {})


def under(found: Verified, seal: Path) -> Verified:
    """The same image with what is attached to it in a sealed layout, whose layers are not read.

    The signed manifest names the configuration, and that the archive of every layer: what was found to have this
    configuration is what was signed. Raises SealError where the layout is of another image, or is not sealed.
    """
    layout = layouts.read(seal)
    if layout.config_digest != found.image.layout.config_digest:
        what = f"the seal is of another image: {layout.config_digest}, and not {found.image.layout.config_digest}"
        raise SealError(what, where=str(seal), fix="name the sealed layout that this image came from")
    image = attrs.evolve(found.image, layout=layout)
    intact.check_manifest(image)
    documents = referrers.read(layout)
    if not documents:
        raise SealError("it has no seal either", where=str(seal), fix="have its builder run: pih seal")
    return Verified(image, documents, _statements(image, documents))


def vouched(found: Verified, policy: Policy, now: dt.datetime) -> Verified:
    """The same, once enough of the policy's keys have signed each statement; raises SealError where they have not."""
    where = str(found.image.layout.path)
    if not found.image.layout.digest:
        what = "nobody vouches for it: signatures travel with the image's layout, and this form of it keeps none"
        raise SealError(what, where=where, fix="name the sealed layout that it came from: --seal LAYOUT")
    if not found.envelopes:
        raise SealError("nobody vouches for it: it was never sealed", where=where, fix="have its builder run: pih seal")
    good = [key for key in policy.keys if key.expires is None or now < key.expires]
    counted = set(good)
    for kind, envelope in found.envelopes.items():
        by = dsse.signers(envelope, (key.public for key in policy.keys))
        claimed = {item.keyid for item in envelope.signatures}
        for key in policy.keys:
            if key.fingerprint in claimed and key.public not in by:
                raise SealError(f"the signature of {key.words} under {kind} is not right", where=where, fix=FIX)
        counted &= {key for key in good if key.public in by}
        if sum(key.public in by for key in good) < policy.threshold:
            raise SealError(_too_few(kind, by, good, policy), where=where, fix="have it signed: pih seal --key")
    if len(counted) < policy.threshold:
        raise SealError(
            "its statements are signed by different keys", where=where, fix="have it signed: pih seal --key"
        )
    return attrs.evolve(found, vouched=tuple(key for key in good if key in counted))


def _too_few(kind: str, by: tuple[str, ...], good: list[Key], policy: Policy) -> str:
    signed = [key.words for key in good if key.public in by]
    expired = [f"{key.words} expired on {key.expires:%Y-%m-%d}" for key in policy.keys if key not in good]
    missing = [f"{key.words} did not sign" for key in good if key.public not in by]
    what = f"{kind} has {len(signed)} of the {policy.threshold} signatures that it needs"
    return "; ".join([what, *missing, *expired])


def _statements(image: Image, documents: Mapping[str, bytes]) -> dict[str, Envelope]:
    """The statements, each about this image and true of it."""
    made = parts.of(image.lock, image.files)
    for kind, check in ((referrers.SPDX, sbom.check_spdx), (referrers.CYCLONEDX, sbom.check_cyclonedx)):
        check(_object(image, kind, documents[kind]), image, made)
    found: dict[str, Envelope] = {}
    for predicate, kind in referrers.STATEMENTS.items():
        try:
            found[predicate] = dsse.parse(documents[kind])
        except dsse.EnvelopeError as problem:
            raise _wrong(image, kind, str(problem)) from problem
        _statement(image, kind, predicate, found[predicate].statement)
    for predicate, kind in referrers.DOCUMENTS.items():
        if canonical(found[predicate].statement["predicate"]) != documents[kind]:
            raise _wrong(image, referrers.STATEMENTS[predicate], f"it is not about the attached {kind}")
    held = found[provenance.PREDICATE].statement["predicate"]
    _provenance(image, held)
    return found


def _statement(image: Image, kind: str, predicate: str, said: dict[str, Any]) -> None:
    about = [{"name": image.layout.reference, "digest": {"sha256": image.layout.digest.removeprefix("sha256:")}}]
    if said.get("subject") != about or said.get("_type") != dsse.STATEMENT or said.get("predicateType") != predicate:
        raise _wrong(image, kind, f"it is not a statement about this image, {image.layout.digest}")
    if not isinstance(said.get("predicate"), dict):
        raise _wrong(image, kind, "it states nothing")


def _provenance(image: Image, said: dict[str, Any]) -> None:
    kind = referrers.STATEMENTS[provenance.PREDICATE]
    wanted = provenance.predicate(image.lock, image.contents.lock, image.sources)["buildDefinition"]
    definition = said.get("buildDefinition")
    if not isinstance(definition, dict):
        raise _wrong(image, kind, "it has no buildDefinition")
    for key, value in wanted.items():
        if definition.get(key) != value:
            raise _wrong(image, kind, f"its {key} is not that of the bundle's lock")


def _object(image: Image, kind: str, data: bytes) -> dict[str, Any]:
    try:
        found = json_of(data)
        if isinstance(found, dict) and canonical(found) == data:
            return found
    except (ValueError, RecursionError):  # what is read may still be too deep to be written
        pass
    raise _wrong(image, kind, "it is not JSON in canonical form")


def _wrong(image: Image, kind: str, what: str) -> SealError:
    return SealError(f"the attached {kind} is not right: {what}", where=str(image.layout.path), fix=FIX)
