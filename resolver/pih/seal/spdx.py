"""The SBOM as SPDX 2.3 JSON: every file of the image, the list of files and links included, each in its package.

https://spdx.github.io/spdx-spec/v2.3/. The same image gives the same document: nothing in it depends on when, where or
by whom it is written. Where SPDX has no word, the document says in `comment` what it means.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from typing import Any

from pih import VERSION
from pih.seal.intact import Image, Read
from pih.seal.parts import Part
from pih.spdx import NOASSERTION, both
from pih_steps import oci

DOCUMENT, IMAGE = "SPDXRef-DOCUMENT", "SPDXRef-Image"
_LINK = "a symbolic link to {}; the checksums are those of this text"


def document(image: Image, parts: Sequence[Part]) -> dict[str, Any]:
    """The document."""
    digest = image.layout.digest.removeprefix("sha256:")
    return {
        "spdxVersion": "SPDX-2.3",
        "dataLicense": "CC0-1.0",
        "SPDXID": DOCUMENT,
        "name": image.contents.name,
        "documentNamespace": f"https://pih.invalid/spdx/{digest}",
        "creationInfo": {
            "created": oci.CREATED,
            "creators": [f"Tool: pih-{VERSION}"],
            "comment": "the date is that of every bundle: a document is told by the image's digest, not by a time",
        },
        "documentDescribes": [IMAGE],
        "packages": [_image(image, parts), *(_package(part, image.files) for part in parts)],
        "files": [_file(file) for file in image.files],
        "relationships": list(_relationships(parts)),
    }


def _image(image: Image, parts: Iterable[Part]) -> dict[str, Any]:
    return {
        "SPDXID": IMAGE,
        "name": image.contents.name,
        "versionInfo": image.lock.pih,
        "downloadLocation": NOASSERTION,
        "filesAnalyzed": False,
        "primaryPackagePurpose": "CONTAINER",
        "licenseDeclared": both(part.licence for part in parts if part.files),
        "checksums": [{"algorithm": "SHA256", "checksumValue": image.layout.digest.removeprefix("sha256:")}],
        "externalRefs": [_purl(f"pkg:oci/{image.contents.name}@{image.layout.digest.replace(':', '%3A')}")],
    }


def _package(part: Part, files: Iterable[Read]) -> dict[str, Any]:
    own = set(part.files)
    found: dict[str, Any] = {
        "SPDXID": _id("Package", part.name),
        "name": part.name,
        "versionInfo": part.version,
        "downloadLocation": NOASSERTION,
        "filesAnalyzed": bool(own),
        "licenseDeclared": part.licence,
    }
    if own:
        sums = "".join(sorted(file.sha1 for file in files if file.path in own))
        code = hashlib.sha1(sums.encode(), usedforsecurity=False).hexdigest()
        found["packageVerificationCode"] = {"packageVerificationCodeValue": code}
    if part.sha256:
        found["checksums"] = [{"algorithm": "SHA256", "checksumValue": part.sha256}]
    if part.purl:
        found["externalRefs"] = [_purl(part.purl)]
    return found


def _purl(text: str) -> dict[str, str]:
    return {"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl", "referenceLocator": text}


def _file(file: Read) -> dict[str, Any]:
    found: dict[str, Any] = {
        "SPDXID": _file_id(file.path),
        "fileName": f".{file.path}",
        "checksums": [
            {"algorithm": "SHA1", "checksumValue": file.sha1},
            {"algorithm": "SHA256", "checksumValue": file.sha256},
        ],
    }
    return found | {"comment": _LINK.format(file.target)} if file.target else found


def _relationships(parts: Iterable[Part]) -> Iterable[dict[str, str]]:
    yield _relation(DOCUMENT, "DESCRIBES", IMAGE)
    for part in parts:
        name = _id("Package", part.name)
        if part.files:
            yield _relation(IMAGE, "CONTAINS", name)
        for source in part.made_from:
            yield _relation(name, "GENERATED_FROM", _id("Package", source))
        for path in part.files:
            yield _relation(name, "CONTAINS", _file_id(path))


def _relation(one: str, kind: str, other: str) -> dict[str, str]:
    return {"spdxElementId": one, "relationshipType": kind, "relatedSpdxElement": other}


def _id(kind: str, name: str) -> str:
    """An id has letters, digits, dots and hyphens."""
    return f"SPDXRef-{kind}-" + re.sub(r"[^A-Za-z0-9.-]", lambda found: f"-{ord(found[0]):x}-", name)


def _file_id(path: str) -> str:
    return f"SPDXRef-File-{hashlib.sha256(path.encode()).hexdigest()[:24]}"
