"""Weights that are delivered apart, as an OCI artifact of the ModelPack specification (CNCF, version 1).

So registries keep them, and the tools that carry images or models carry them. Each file is a layer of its own, as it
is, so that the blob is the file. Media types, keys of the configuration: github.com/modelpack/model-spec.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pih.build.store import measure
from pih.bundle import layout as layouts
from pih_runtime.errors import SealError
from pih_steps import oci

MANIFEST = "application/vnd.cncf.model.manifest.v1+json"
CONFIG = "application/vnd.cncf.model.config.v1+json"
WEIGHT = "application/vnd.cncf.model.weight.v1.raw"
WEIGHT_CONFIG = "application/vnd.cncf.model.weight.config.v1.raw"
_PATH = "org.cncf.model.filepath"
_REFERENCE = "org.opencontainers.image.ref.name"


def write(
    layout: Path, name: str, version: str, licence: str, weights: tuple[str, Path], table: tuple[str, Path]
) -> oci.Blob:
    """Write a layout, whose blobs are links to the files, and give its manifest. weights, table: (name in it, file).

    licence: an SPDX expression, '' where it is not known.
    """
    oci.create(layout)
    layers = [_file(layout, WEIGHT, *weights), _file(layout, WEIGHT_CONFIG, *table)]
    described: dict[str, Any] = {"name": name, "version": version} | ({"licenses": [licence]} if licence else {})
    facts = {
        "descriptor": described,
        "config": {"format": "safetensors"},
        "modelfs": {"type": "layers", "diffIds": [layer["digest"] for layer in layers]},
    }
    config = oci.add_bytes(layout, oci.canonical(facts), CONFIG)
    manifest = {
        "schemaVersion": 2,
        "mediaType": oci.MANIFEST,
        "artifactType": MANIFEST,
        "config": config.descriptor(),
        "layers": layers,
    }
    found = oci.add_bytes(layout, oci.canonical(manifest), oci.MANIFEST)
    entry = {**found.descriptor(), "artifactType": MANIFEST, "annotations": {_REFERENCE: version}}
    (layout / "index.json").write_bytes(oci.index([entry]))
    return found


def blobs(layout: Path) -> set[str] | None:
    """Digests of what a layout of `write` consists of; None where it is another one."""
    try:
        index = layouts.parsed((layout / "index.json").read_bytes(), layout)
        (entry,) = index["manifests"]
        if entry["artifactType"] != MANIFEST:
            return None
        manifest = layouts.parsed(layouts.small_blob(layout, entry["digest"], entry["size"]), layout)
        weights, table = manifest["layers"]
        if (weights["mediaType"], table["mediaType"]) != (WEIGHT, WEIGHT_CONFIG):
            return None
        return {entry["digest"], *(str(blob["digest"]) for blob in (manifest["config"], weights, table))}
    except (OSError, SealError, LookupError, TypeError, ValueError, AttributeError):
        return None


def _file(layout: Path, kind: str, name: str, path: Path) -> Mapping[str, Any]:
    digest, size = measure(path)
    blob = oci.Blob(kind, f"sha256:{digest}", size)
    oci.path_of(layout, blob.digest).symlink_to(path.absolute())
    return {**blob.descriptor(), "annotations": {_PATH: name}}
