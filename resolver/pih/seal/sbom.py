"""What an SBOM says against what is there: the files of the image, all and no others, and its parts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from pih.seal import spdx
from pih.seal.agreement import FIX
from pih.seal.intact import Image
from pih.seal.parts import Part
from pih.spdx import NOASSERTION
from pih_runtime.errors import SealError

_Row = tuple[str, str, str, str]


def check_spdx(document: Mapping[str, Any], image: Image, parts: Iterable[Part]) -> None:
    """Raises SealError unless the SPDX document lists just these files and parts."""
    try:
        files = {
            str(item["fileName"]).removeprefix("."): {
                sum_["algorithm"]: sum_["checksumValue"] for sum_ in item["checksums"]
            }
            for item in document["files"]
        }
        rows = {_spdx_row(item) for item in document["packages"] if item["SPDXID"] != spdx.IMAGE}
        counts = (len(document["files"]), len(document["packages"]))
    except (LookupError, TypeError, AttributeError) as problem:
        raise _wrong(image, "the SPDX document cannot be read: a field is missing, or of another kind") from problem
    wanted = {file.path: {"SHA1": file.sha1, "SHA256": file.sha256} for file in image.files}
    for path in sorted(wanted.keys() | files.keys()):
        if path not in files:
            raise _wrong(image, f"the SPDX document does not list {path}")
        if path not in wanted:
            raise _wrong(image, f"the SPDX document lists {path}, which the image has not")
        if files[path] != wanted[path]:
            raise _wrong(image, f"the SPDX document has other digests of {path}")
    _same_parts("SPDX", rows, image, parts)
    if counts != (len(wanted), len(rows) + 1):
        raise _wrong(image, "the SPDX document lists something twice")


def check_cyclonedx(document: Mapping[str, Any], image: Image, parts: Iterable[Part]) -> None:
    """Raises SealError unless the CycloneDX document lists just these parts."""
    try:
        rows = {_cyclonedx_row(item) for item in document["components"]}
    except (LookupError, TypeError, AttributeError) as problem:
        raise _wrong(
            image, "the CycloneDX document cannot be read: a field is missing, or of another kind"
        ) from problem
    _same_parts("CycloneDX", rows, image, parts)


def _same_parts(kind: str, rows: set[_Row], image: Image, parts: Iterable[Part]) -> None:
    wanted = {(part.name, part.version, part.licence, part.purl) for part in parts}
    if missing := sorted(wanted - rows):
        raise _wrong(image, f"the {kind} document does not list {' '.join(missing[0])}")
    if extra := sorted(rows - wanted):
        raise _wrong(image, f"the {kind} document lists {' '.join(extra[0])}, which the image has not")


def _spdx_row(item: Mapping[str, Any]) -> _Row:
    purls = [ref["referenceLocator"] for ref in item.get("externalRefs", ()) if ref["referenceType"] == "purl"]
    return str(item["name"]), str(item["versionInfo"]), str(item["licenseDeclared"]), str(purls[0]) if purls else ""


def _cyclonedx_row(item: Mapping[str, Any]) -> _Row:
    licences = [str(entry["expression"]) for entry in item.get("licenses", ())]
    return str(item["name"]), str(item["version"]), licences[0] if licences else NOASSERTION, str(item.get("purl", ""))


def _wrong(image: Image, what: str) -> SealError:
    return SealError(what, where=str(image.layout.path), fix=FIX)
