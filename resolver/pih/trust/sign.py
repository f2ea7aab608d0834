"""Signatures of plugins and catalogs: of a digest with a word before it that says what is signed.

A signature of one kind of thing is never one of another: the word (`plugin`, `catalog`, `rotation`) is signed too.
"""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import TYPE_CHECKING

import attrs

from pih.reading import json_of, read_at_most, said
from pih.structure import StructureError, structure, unstructure
from pih.trust.keys import decoded, fingerprint, public_of, signed
from pih_runtime.errors import ResolutionError

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


def made(key: str, word: str, digest: str, signature: Signature) -> bool:
    """Whether `key` made this signature of `digest` as a `word`."""
    try:
        raw = decoded(signature.signature, 64)
    except ValueError:
        return False
    return signed(key, raw, _message(word, digest))


def sign(private: Ed25519PrivateKey, word: str, digest: str) -> Signature:
    """Sign `digest` as a `word`."""
    return Signature(1, public_of(private), base64.b64encode(private.sign(_message(word, digest))).decode())


def read(path: Path) -> Signature | None:
    """The signature in a file; None where there is none. Raises ResolutionError for a file that is none."""
    try:
        raw = read_at_most(path, _MAX_BYTES)
        found = structure(json_of(raw), Signature)
        fingerprint(found.key)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, StructureError) as problem:
        raise ResolutionError(
            f"not a signature: {said(problem)}",
            where=str(path),
            fix="have its publisher sign it again: pih catalog sign",
        ) from problem
    return found


def text(signature: Signature) -> str:
    """The file that lies beside what a signature covers."""
    return json.dumps(unstructure(signature), indent=2) + "\n"


def _message(word: str, digest: str) -> bytes:
    return f"pih {word} 1\n{digest}\n".encode()
