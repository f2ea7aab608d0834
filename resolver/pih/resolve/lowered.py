"""Lowering on the parameters of a `plan` step, remembered by everything that it reads."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pih.catalog import Report
from pih.lock import Artifact
from pih.resolve import outside
from pih.resolve.lowering import Because, Fetch, Lowered, inputs, lower
from pih.resolve.memo import remembered


def lowered(
    params: Mapping[str, Any],
    root: Path,
    artifacts: Mapping[str, Artifact],
    carried: Mapping[str, Artifact],
    report: Report,
    fetch: Fetch,
    because: Because,
    memo: Path | None,
    stored: str = "",
) -> Lowered:
    """As `lowering.lower`. artifacts: by name, those of the deployment; carried: by plugin, those from outside.

    memo: the folder that remembers.
    """
    names, trees = inputs(params)
    read = (params["model"], params["kernels"], *trees)
    unpacked = outside.digests(read, carried)

    def make() -> Lowered:
        with outside.places(root, (params["model"], params["kernels"]), carried, fetch) as place:
            return lower(params, artifacts, report, place, fetch, because, stored)

    return remembered(
        memo,
        root,
        {**params, "stored": stored},
        {name: artifacts[name].sha256 for name in names} | unpacked,
        tuple(tree for tree in read if tree not in unpacked),
        make,
        Lowered,
    )
