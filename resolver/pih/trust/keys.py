"""Keys: ed25519, through `cryptography`. In memory a public key is base64 of its 32 bytes, as keyrings hold it.

In files: PEM, as openssl writes and reads it: a private key as PKCS #8 without a password, a public one as
SubjectPublicKeyInfo.
"""

from __future__ import annotations

import base64
import hashlib
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

from pih.reading import read_at_most, said
from pih.writing import named
from pih_runtime.errors import UsageError

if TYPE_CHECKING:  # where nothing is signed, nothing waits for the library
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

PUBLIC = ".pub"  # beside a private key: its public half
_MAKE = "make one: pih key generate FILE"
_MAX_BYTES = 1 << 16
_WHY = "it is not PEM, is damaged, or asks for a password"  # the library's words are for programmers
# What is before the 32 bytes of an ed25519 key in the DER of a SubjectPublicKeyInfo (RFC 8410).
_DER = bytes.fromhex("302a300506032b6570032100")


def fingerprint(key: str) -> str:
    """`ed25519:` and half of the sha256 of a public key, in 32 hex digits: what people compare."""
    return "ed25519:" + hashlib.sha256(decoded(key, 32)).hexdigest()[:32]


def is_fingerprint(text: str) -> bool:
    """Whether this is the form of a fingerprint."""
    return re.fullmatch(r"ed25519:[0-9a-f]{32}", text) is not None


def decoded(text: str, length: int) -> bytes:
    """The bytes of base64 text; raises ValueError unless there are `length`."""
    raw = base64.b64decode(text, validate=True)
    if len(raw) != length:
        raise ValueError(f"{length} bytes expected, not {len(raw)}")
    return raw


def signed(key: str, signature: bytes, message: bytes) -> bool:
    """Whether `key` made this signature of the message."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    try:
        Ed25519PublicKey.from_public_bytes(decoded(key, 32)).verify(signature, message)
    except (InvalidSignature, ValueError):
        return False
    return True


def public_of(private: Ed25519PrivateKey) -> str:
    """The public key."""
    return base64.b64encode(private.public_key().public_bytes_raw()).decode()


def pem_body(key: str) -> str:
    """The one line between the marks of a public key's PEM file."""
    return base64.b64encode(_DER + decoded(key, 32)).decode()


def from_pem_body(line: str) -> str:
    """The public key of such a line; raises ValueError where it is none."""
    raw = decoded(line, len(_DER) + 32)
    if not raw.startswith(_DER):
        raise ValueError("not an ed25519 key")
    return base64.b64encode(raw.removeprefix(_DER)).decode()


def generate(path: Path) -> Ed25519PrivateKey:
    """Make a key where nothing is yet: the private one for its owner alone to read, the public one beside it."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    private = Ed25519PrivateKey.generate()
    raw = private.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    public = f"-----BEGIN PUBLIC KEY-----\n{pem_body(public_of(private))}\n-----END PUBLIC KEY-----\n".encode()
    _write(path, raw, 0o600)
    try:
        _write(public_path(path), public, 0o644)
    except (OSError, UsageError):
        path.unlink()
        raise
    return private


def public_path(path: Path) -> Path:
    """Where `generate` writes the public half."""
    return path.with_name(path.name + PUBLIC)


def load_private(path: Path) -> Ed25519PrivateKey:
    """A private key of a file; raises UsageError where it is none."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    raw = _read(path, "a private key", _MAKE)
    try:
        found = serialization.load_pem_private_key(raw, None)
    except (ValueError, TypeError) as problem:
        raise UsageError(f"not a private key: {_WHY}", where=str(path), fix=_MAKE) from problem
    if not isinstance(found, Ed25519PrivateKey):
        raise UsageError("not an ed25519 key", where=str(path), fix=_MAKE)
    return found


def load_public(path: Path) -> str:
    """A public key of a file; raises UsageError where it is none."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    fix = "give a file as `pih key generate` or `openssl pkey -pubout` writes it"
    raw = _read(path, "a public key", fix)
    if b"PRIVATE KEY" in raw:
        raise UsageError("this is a private key: it stays with its owner", where=str(path), fix=fix)
    try:
        found = serialization.load_pem_public_key(raw)
    except (ValueError, TypeError) as problem:
        raise UsageError(f"not a public key: {_WHY}", where=str(path), fix=fix) from problem
    if not isinstance(found, Ed25519PublicKey):
        raise UsageError("not an ed25519 key", where=str(path), fix=fix)
    return base64.b64encode(found.public_bytes_raw()).decode()


def load_either(path: Path) -> str:
    """The public key of a file that holds it, or the private one."""
    private = b"PRIVATE KEY" in _read(path, "a key", _MAKE)
    return public_of(load_private(path)) if private else load_public(path)


def _read(path: Path, what: str, fix: str) -> bytes:
    try:
        raw = read_at_most(path, _MAX_BYTES)
    except (OSError, ValueError) as problem:
        raise UsageError(f"not {what}: {said(problem)}", where=str(path), fix=fix) from problem
    if b"-----BEGIN EC " in raw:  # parameters and key, of a curve that is not this one
        raise UsageError("not an ed25519 key", where=str(path), fix=_MAKE)
    if raw.count(b"-----BEGIN ") > 1:
        raise UsageError(f"not {what}: the file holds several", where=str(path), fix="give a file for each")
    return raw


def _write(path: Path, raw: bytes, mode: int) -> None:
    try:
        writer = open(path, "xb", opener=lambda name, flags: os.open(name, flags, mode))  # noqa: SIM115 - closed below
    except FileExistsError as problem:
        raise UsageError("is there already, and may be a key", where=str(path), fix="name a new file") from problem
    try:
        with named(path), writer:
            writer.write(raw)
            writer.flush()
            os.fsync(writer.fileno())
    except OSError:
        path.unlink()
        raise
