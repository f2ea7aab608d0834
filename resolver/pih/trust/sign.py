"""Signatures: ed25519, through `cryptography`, of a digest with a word before it that says what is signed.

A signature of one kind of thing is never one of another: the word (`plugin`, `catalog`, `rotation`) is signed too.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

import attrs

from pih.structure import StructureError, structure, unstructure
from pih_runtime.errors import ResolutionError, UsageError

if TYPE_CHECKING:  # where nothing is signed, nothing waits for the library
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

_MAX_BYTES = 1 << 16


@attrs.frozen
class Signature:
    """Who says so. key: the public key, base64 of 32 bytes; signature: base64 of 64."""

    schema: int
    key: str
    signature: str

    @property
    def fingerprint(self) -> str:
        """The key's short name."""
        return fingerprint(self.key)


def fingerprint(key: str) -> str:
    """`ed25519:` and half of the sha256 of a public key, in 32 hex digits: what people compare."""
    return "ed25519:" + hashlib.sha256(_bytes(key, 32)).hexdigest()[:32]


def is_fingerprint(text: str) -> bool:
    """Whether this is the form of a fingerprint."""
    return re.fullmatch(r"ed25519:[0-9a-f]{32}", text) is not None


def made(key: str, word: str, digest: str, signature: Signature) -> bool:
    """Whether `key` made this signature of `digest` as a `word`."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    try:
        public = Ed25519PublicKey.from_public_bytes(_bytes(key, 32))
        public.verify(_bytes(signature.signature, 64), _message(word, digest))
    except (InvalidSignature, ValueError):
        return False
    return True


def sign(private: Ed25519PrivateKey, word: str, digest: str) -> Signature:
    """Sign `digest` as a `word`."""
    return Signature(1, public_of(private), base64.b64encode(private.sign(_message(word, digest))).decode())


def public_of(private: Ed25519PrivateKey) -> str:
    """The public key, as signatures and keyrings hold it."""
    return base64.b64encode(private.public_key().public_bytes_raw()).decode()


def read(path: Path) -> Signature | None:
    """The signature in a file; None where there is none. Raises ResolutionError for a file that is none."""
    try:
        raw = path.read_bytes() if path.stat().st_size <= _MAX_BYTES else b""
        found = structure(json.loads(raw), Signature)
        fingerprint(found.key)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError, StructureError) as problem:
        raise ResolutionError(
            f"not a signature: {problem}", where=str(path), fix="have its publisher sign it again: pih catalog sign"
        ) from problem
    return found


def write(path: Path, signature: Signature) -> None:
    """Write a signature beside what it covers."""
    path.write_text(json.dumps(unstructure(signature), indent=2) + "\n", encoding="utf-8")


def new_key(path: Path) -> Ed25519PrivateKey:
    """Make a private key and write it where nothing is yet, for its owner alone to read."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    private = Ed25519PrivateKey.generate()
    raw = private.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    try:
        with open(path, "xb", opener=lambda name, flags: os.open(name, flags, 0o600)) as writer:
            writer.write(raw)
    except OSError as problem:
        raise UsageError(
            f"cannot write a key: {problem.strerror}", where=str(path), fix="name a new file in a folder of yours"
        ) from problem
    return private


def load_key(path: Path) -> Ed25519PrivateKey:
    """A private key as `new_key` or openssl writes it: PEM, PKCS #8, without a password."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    try:
        found = serialization.load_pem_private_key(path.read_bytes(), None)
    except (OSError, ValueError, TypeError) as problem:
        raise UsageError(
            f"not a private key: {problem}", where=str(path), fix="make one: pih catalog keygen FILE"
        ) from problem
    if not isinstance(found, Ed25519PrivateKey):
        raise UsageError("not an ed25519 key", where=str(path), fix="make one: pih catalog keygen FILE")
    return found


def _message(word: str, digest: str) -> bytes:
    return f"pih {word} 1\n{digest}\n".encode()


def _bytes(text: str, length: int) -> bytes:
    raw = base64.b64decode(text, validate=True)
    if len(raw) != length:
        raise ValueError(f"{length} bytes expected, not {len(raw)}")
    return raw
