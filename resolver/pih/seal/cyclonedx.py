"""The SBOM as CycloneDX 1.6 JSON: the packages and what each was made from; the files are in the SPDX document.

https://cyclonedx.org/docs/1.6/json/. Without a time, and with a serial number that follows from the image's digest.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any

from pih import VERSION
from pih.seal.intact import Image
from pih.seal.parts import Part
from pih.spdx import NOASSERTION

_TYPES = {"deb": "library", "wheel": "library", "npm": "library", "own": "application", "plugin": "application"}
_IMAGE = "image"


def document(image: Image, parts: Sequence[Part]) -> dict[str, Any]:
    """The document."""
    name, digest = image.contents.name, image.layout.digest.removeprefix("sha256:")
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, image.layout.digest)}",
        "version": 1,
        "metadata": {
            "tools": {"components": [{"type": "application", "name": "pih", "version": VERSION}]},
            "component": {
                "bom-ref": _IMAGE,
                "type": "container",
                "name": name,
                "version": image.lock.pih,
                "hashes": [{"alg": "SHA-256", "content": digest}],
            },
        },
        "components": [_component(part) for part in parts],
        "dependencies": [
            {"ref": _IMAGE, "dependsOn": [_ref(part.name) for part in parts if part.files]},
            *(
                {"ref": _ref(part.name), "dependsOn": [_ref(source) for source in part.made_from]}
                for part in parts
                if part.made_from
            ),
        ],
    }


def _component(part: Part) -> dict[str, Any]:
    found: dict[str, Any] = {
        "bom-ref": _ref(part.name),
        "type": _TYPES.get(part.kind, "data"),
        "name": part.name,
        "version": part.version,
    }
    if part.licence != NOASSERTION:
        found["licenses"] = [{"expression": part.licence}]
    if part.sha256:
        found["hashes"] = [{"alg": "SHA-256", "content": part.sha256}]
    return found | {"purl": part.purl} if part.purl else found


def _ref(name: str) -> str:
    return f"part:{name}"
