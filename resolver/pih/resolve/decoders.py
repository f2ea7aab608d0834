"""Model plugins by the architecture that they are called like."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pih.catalog import Catalog
from pih_runtime.errors import BuildError


def names(catalog: Catalog) -> frozenset[str]:
    """What a profile can name as model.plugin."""
    return frozenset(item.id.partition("/")[2] for item in catalog.plugins if "model.decoder" in item.provides)


def meant(
    params: Mapping[str, Any], files: Mapping[str, Path], folders: Mapping[str, Path], known: frozenset[str]
) -> str:
    """The one called like the checkpoint's own architecture, where the `plan` step has another; ''."""
    from pih_steps.lower import sources

    try:
        own = sources.described(params["checkpoint"], files, folders).config.get("model_type")
    except BuildError:
        return ""
    chosen = params["model"].rpartition("/")[2]
    return own if isinstance(own, str) and own in known - {chosen} else ""
