"""Signed envelopes: DSSE v1 (https://github.com/secure-systems-lab/dsse) around an in-toto statement v1.

Payload and envelope are JSON with one spelling, so that an envelope with the same content is the same bytes.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import attrs

from pih.reading import json_of
from pih.trust import keys
from pih_steps.oci import canonical

if TYPE_CHECKING:  # where nothing is signed, nothing waits for the library
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

PAYLOAD_TYPE = "application/vnd.in-toto+json"
_NONE = "not a DSSE envelope of an in-toto statement"
UNKNOWN = "an unknown key"
STATEMENT = "https://in-toto.io/Statement/v1"


class EnvelopeError(ValueError):
    """The bytes are no envelope as this module writes it."""


@attrs.frozen
class Signature:
    """keyid: fingerprint of the key that is said to have made it."""

    keyid: str
    raw: bytes


@attrs.frozen
class Envelope:
    """A payload and who signed it; signatures are in the order of their key ids."""

    payload: bytes
    signatures: tuple[Signature, ...] = ()

    @property
    def statement(self) -> dict[str, Any]:
        """The payload, parsed; `parse` has seen that it is an object."""
        found: dict[str, Any] = json_of(self.payload)
        return found


def statement(name: str, digest: str, predicate_type: str, predicate: Mapping[str, Any]) -> Envelope:
    """An unsigned statement about an image. digest: 'sha256:…' of its manifest."""
    return Envelope(
        canonical(
            {
                "_type": STATEMENT,
                "subject": [{"name": name, "digest": {"sha256": digest.removeprefix("sha256:")}}],
                "predicateType": predicate_type,
                "predicate": predicate,
            }
        )
    )


def signed(envelope: Envelope, private: Ed25519PrivateKey) -> Envelope:
    """The envelope with this key's signature; a key signs once."""
    own = Signature(keys.fingerprint(keys.public_of(private)), private.sign(pae(envelope.payload)))
    rest = (other for other in envelope.signatures if other != own)
    return attrs.evolve(envelope, signatures=tuple(sorted((*rest, own), key=lambda item: (item.keyid, item.raw))))


def signers(envelope: Envelope, public: Iterable[str]) -> tuple[str, ...]:
    """Which of these public keys signed it. A key id is a hint, and is not asked."""
    message = pae(envelope.payload)
    return tuple(key for key in public if any(keys.signed(key, item.raw, message) for item in envelope.signatures))


def named(envelopes: Iterable[Envelope]) -> tuple[str, ...]:
    """Ids of the keys that say they signed all of these: a hint, which anybody can write.

    What has not the form of a fingerprint is `UNKNOWN`, whatever it says.
    """
    ids = [
        {item.keyid if keys.is_fingerprint(item.keyid) else UNKNOWN for item in envelope.signatures}
        for envelope in envelopes
    ]
    return tuple(sorted(set.intersection(*ids))) if ids else ()


def pae(payload: bytes) -> bytes:
    """What is signed: DSSE's pre-authentication encoding of type and payload."""
    kind = PAYLOAD_TYPE.encode()
    return b"DSSEv1 %d %b %d %b" % (len(kind), kind, len(payload), payload)


def to_json(envelope: Envelope) -> bytes:
    """The envelope's bytes."""
    return canonical(
        {
            "payload": base64.b64encode(envelope.payload).decode(),
            "payloadType": PAYLOAD_TYPE,
            "signatures": [
                {"keyid": item.keyid, "sig": base64.b64encode(item.raw).decode()} for item in envelope.signatures
            ],
        }
    )


def parse(data: bytes) -> Envelope:
    """Read an envelope; raises EnvelopeError where it is none, or is spelled in another way."""
    try:
        found = json_of(data)
        payload = base64.b64decode(found["payload"], validate=True)
        signatures = tuple(
            Signature(str(item["keyid"]), base64.b64decode(item["sig"], validate=True)) for item in found["signatures"]
        )
        envelope = Envelope(payload, signatures)
        inner = json_of(payload)
        if not isinstance(inner, dict) or canonical(inner) != payload or to_json(envelope) != data:
            raise EnvelopeError(f"{_NONE}: it is not in canonical form")
        if len(set(signatures)) != len(signatures):
            raise EnvelopeError(f"{_NONE}: a signature is there twice")
    except EnvelopeError:
        raise
    except (
        ValueError,
        LookupError,
        TypeError,
        AttributeError,
        RecursionError,
    ) as problem:
        raise EnvelopeError(_NONE) from problem
    return envelope
