"""Package URLs: which package, of which registry, can supply an artifact. Never a registry's address.

pkg:pypi/NAME@VERSION?file_name=WHEEL
pkg:deb/debian/NAME@VERSION?arch=amd64&path=pool/main/z/zlib/zlib1g_1.3_amd64.deb
pkg:npm/%40scope/NAME@VERSION
pkg:huggingface/OWNER/REPO@REVISION?file_name=model.safetensors
pkg:generic/file?path=weights/model.gguf        relative to the lock's folder
"""

from __future__ import annotations

import re

import attrs
from packageurl import PackageURL

from pih_runtime.errors import LockError

# What the registries' own clients take for a name or version, and for nothing else.
_NAME = re.compile(r"@?[A-Za-z0-9_][A-Za-z0-9._+/-]*\Z")
_VERSION = re.compile(r"([A-Za-z0-9][A-Za-z0-9._+:~!-]*)?\Z")
TYPES = ("pypi", "deb", "npm", "huggingface", "generic")


@attrs.frozen
class Purl:
    """name: with its namespace, as the registry's own client wants it."""

    type: str
    name: str
    version: str
    qualifiers: dict[str, str]


def parse(text: str) -> Purl:
    """Read a purl of a lock; raises LockError for one that no fetcher understands."""
    try:
        url = PackageURL.from_string(text)
    except ValueError as problem:
        raise LockError(f"not a package URL: {problem}", where=text, fix="write the lock again: pih lock") from problem
    if url.type not in TYPES:
        raise LockError(
            f"nothing can fetch packages of type {url.type!r}", where=text, fix=f"one of {', '.join(TYPES)}"
        )
    values = (url.qualifiers or {}).values()
    if not _VERSION.match(url.version or "") or not all(value.isprintable() for value in values):
        raise LockError("not the package URL of a file", where=repr(text), fix="write the lock again: pih lock")
    name = f"{url.namespace}/{url.name}" if url.namespace and url.type != "deb" else url.name
    if not _NAME.match(name):
        raise LockError(f"{name!r} cannot name a package", where=repr(text), fix="write the lock again: pih lock")
    return Purl(url.type, name, url.version or "", dict(url.qualifiers or {}))


def qualifier(purl: Purl, key: str) -> str:
    """A qualifier that a fetcher cannot do without."""
    try:
        return purl.qualifiers[key]
    except KeyError:
        raise LockError(
            f"the package URL of {purl.name} has no {key!r}", fix="write the lock again: pih lock"
        ) from None


def render(type: str, name: str, version: str, qualifiers: dict[str, str] | None = None) -> str:  # noqa: A002 - purl's own word
    """Write a purl; `name` as in Purl."""
    namespace, _, last = name.rpartition("/")
    if type == "deb":
        namespace = "debian"
    return PackageURL(type, namespace or None, last, version or None, qualifiers or None, None).to_string()
