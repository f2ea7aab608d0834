"""Sealing: SBOM and provenance of an image, signed, attached to a copy of its layout.

A bundle that is sealed already keeps its documents, and gets further signatures.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pih.bundle import copy
from pih.bundle.layout import Layout
from pih.seal import cyclonedx, dsse, intact, parts, provenance, referrers, spdx, verify
from pih.seal.intact import Image
from pih.trust import keys
from pih_runtime.errors import PihError, UsageError
from pih_steps.oci import canonical

if TYPE_CHECKING:  # where nothing is signed, nothing waits for the library
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey


def replaceable(output: Path, privates: Iterable[Ed25519PrivateKey]) -> None:
    """May a copy that these keys seal take the place `output`? Raises UsageError for what cannot be made again."""
    ours = {keys.fingerprint(keys.public_of(private)) for private in privates}
    copy.replaceable(output, lambda before: _outlived(before, ours))


def seal(source: Path, output: Path, privates: Iterable[Ed25519PrivateKey]) -> verify.Verified:
    """Check the layout `source`, and write a sealed copy of it; raises SealError where it is not intact.

    A seal that is at `output` gives way to one with the signatures of the same keys: raises UsageError for another.
    """
    found = verify.whole(source)
    image = found.image
    documents = dict(found.documents) or _documents(image)
    for kind in referrers.STATEMENTS.values():
        envelope = dsse.parse(documents[kind])
        for private in privates:
            envelope = dsse.signed(envelope, private)
        documents[kind] = dsse.to_json(envelope)
    envelopes = {predicate: dsse.parse(documents[kind]) for predicate, kind in referrers.STATEMENTS.items()}
    copy.copied(
        source,
        output,
        lambda folder: referrers.write(folder, intact.entry(image), image.blob, documents),
        lambda before: _outlived(before, _keys(envelopes.values())),
    )
    return verify.Verified(image, documents, envelopes)


def _outlived(before: Layout, ours: set[str]) -> None:
    """Raises UsageError where a layout has a signature that the keys `ours` cannot make again."""
    try:
        held = referrers.read(before)
        gone = _keys(dsse.parse(held[kind]) for kind in referrers.STATEMENTS.values() if held) - ours
    except (PihError, dsse.EnvelopeError):
        gone = {dsse.UNKNOWN}
    if gone:
        raise UsageError(
            f"is a bundle that {min(gone)} signed, and that signature cannot be made again",
            where=str(before.path),
            fix="name another folder, or remove this one",
        )


def _keys(envelopes: Iterable[dsse.Envelope]) -> set[str]:
    return {item.keyid for envelope in envelopes for item in envelope.signatures}


def _documents(image: Image) -> dict[str, bytes]:
    """All that is attached, not signed yet."""
    made = parts.of(image.lock, image.files)
    predicates: dict[str, dict[str, Any]] = {
        provenance.PREDICATE: provenance.predicate(image.lock, image.contents.lock, image.sources),
        "https://spdx.dev/Document": spdx.document(image, made),
        "https://cyclonedx.org/bom": cyclonedx.document(image, made),
    }
    plain = {kind: canonical(predicates[predicate]) for predicate, kind in referrers.DOCUMENTS.items()}
    name, digest = image.layout.reference, image.layout.digest
    return plain | {
        kind: dsse.to_json(dsse.statement(name, digest, predicate, predicates[predicate]))
        for predicate, kind in referrers.STATEMENTS.items()
    }
