"""What is attached to an image: OCI 1.1 artifact manifests whose subject it is, listed in the layout's index.

Engines load the image as before: they look for images in the index, or in the docker archive's manifest.json.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pih.bundle import layout as layouts
from pih.bundle.layout import Layout
from pih.reading import json_of
from pih.seal import provenance
from pih_runtime.errors import SealError
from pih_steps import oci

SPDX = "application/spdx+json"
CYCLONEDX = "application/vnd.cyclonedx+json"
# The statement of each predicate type, in its envelope: names as in-toto gives them.
STATEMENTS = {
    provenance.PREDICATE: "application/vnd.in-toto.provenance+dsse",
    "https://spdx.dev/Document": "application/vnd.in-toto.spdx+dsse",
    "https://cyclonedx.org/bom": "application/vnd.in-toto.cyclonedx+dsse",
}
DOCUMENTS = {"https://spdx.dev/Document": SPDX, "https://cyclonedx.org/bom": CYCLONEDX}
TYPES = frozenset({SPDX, CYCLONEDX, *STATEMENTS.values()})
_EMPTY = oci.Blob("application/vnd.oci.empty.v1+json", f"sha256:{hashlib.sha256(b'{}').hexdigest()}", 2)
_FIX = "do not use it: copy it again from where it came, or seal the bundle again"


def read(layout: Layout) -> dict[str, bytes]:
    """Type → document of all that is attached; empty for an image that nobody sealed.

    Raises SealError unless it is just what `write` attaches.
    """
    if not layout.attached:
        return {}
    index = str(layout.path / "index.json")
    if len(layout.attached) != len(TYPES):
        raise SealError(f"{len(layout.attached)} documents are attached, not {len(TYPES)}", where=index, fix=_FIX)
    found = dict(_document(layout, item.digest, item.size) for item in layout.attached)
    if missing := sorted(TYPES - found.keys()):
        raise SealError(f"no {missing[0]} is attached", where=index, fix=_FIX)
    return found


def _document(layout: Layout, digest: str, size: int) -> tuple[str, bytes]:
    raw = layouts.small_blob(layout.path, digest, size)
    where = str(layouts.blob_path(layout.path, digest))
    try:
        held = json_of(raw)
        kind, blob = held["artifactType"], held["layers"][0]
        data = layouts.small_blob(layout.path, layouts.checked_digest(blob["digest"], layout.path), int(blob["size"]))
    except (ValueError, LookupError, TypeError, OverflowError) as problem:
        raise SealError(f"{digest} is no manifest of an attached document", where=where, fix=_FIX) from problem
    if kind not in TYPES or manifest(_subject(layout), kind, data) != raw:
        raise SealError(f"{digest} is not what pih attaches to this image", where=where, fix=_FIX)
    return kind, data


def manifest(subject: oci.Blob, kind: str, data: bytes) -> bytes:
    """The artifact manifest of a document."""
    predicate = next((key for key, value in STATEMENTS.items() if value == kind), "")
    named = {"in-toto.io/predicate-type": predicate} if predicate else {}
    return oci.canonical(
        {
            "schemaVersion": 2,
            "mediaType": oci.MANIFEST,
            "artifactType": kind,
            "config": _EMPTY.descriptor(),
            "layers": [_blob(kind, data).descriptor()],
            "subject": subject.descriptor(),
            "annotations": {"org.opencontainers.image.created": oci.CREATED} | named,
        }
    )


def index(entry: Mapping[str, Any], subject: oci.Blob, documents: Mapping[str, bytes]) -> bytes:
    """index.json of a layout. entry: the image's line."""
    lines = []
    for kind, data in sorted(documents.items()):
        raw = manifest(subject, kind, data)
        facts = {"artifactType": kind, "annotations": json_of(raw)["annotations"]}
        lines.append(_blob(oci.MANIFEST, raw).descriptor() | facts)
    return oci.index([dict(entry), *lines])


def blobs(subject: oci.Blob, documents: Mapping[str, bytes]) -> dict[str, bytes]:
    """Digest → bytes of all that attaching these documents adds to a layout."""
    if not documents:
        return {}
    raw = [b"{}", *documents.values(), *(manifest(subject, kind, data) for kind, data in documents.items())]
    return {_blob("", data).digest: data for data in raw}


def write(folder: Path, entry: Mapping[str, Any], subject: oci.Blob, documents: Mapping[str, bytes]) -> None:
    """Attach documents to the image of a layout, in place of those that are."""
    for old in layouts.read(folder).attached:
        held = json_of(layouts.small_blob(folder, old.digest, old.size))
        for digest in (held["layers"][0]["digest"], old.digest):
            layouts.blob_path(folder, digest).unlink()
    for digest, data in blobs(subject, documents).items():
        path = oci.path_of(folder, digest)
        path.unlink(missing_ok=True)
        path.write_bytes(data)
        path.chmod(0o444)
    place = folder / "index.json"
    place.unlink()
    place.write_bytes(index(entry, subject, documents))


def _subject(layout: Layout) -> oci.Blob:
    return oci.Blob(oci.MANIFEST, layout.digest, len(oci.canonical(layout.manifest)))


def _blob(kind: str, data: bytes) -> oci.Blob:
    return oci.Blob(kind, f"sha256:{hashlib.sha256(data).hexdigest()}", len(data))
