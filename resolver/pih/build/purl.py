"""Package URLs: which package, of which registry, can supply an artifact. Never a registry's address.

pkg:pypi/NAME@VERSION?file_name=WHEEL
pkg:deb/debian/NAME@VERSION?arch=amd64&path=pool/main/z/zlib/zlib1g_1.3_amd64.deb
pkg:npm/%40scope/NAME@VERSION
pkg:huggingface/OWNER/REPO@REVISION?file_name=model.safetensors
pkg:generic/file?path=weights/model.gguf        relative to the lock's folder
"""

from __future__ import annotations

import attrs
from packageurl import PackageURL

from pih_runtime.errors import LockError

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
    name = f"{url.namespace}/{url.name}" if url.namespace and url.type != "deb" else url.name
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
