"""What each component takes of an image as it is shipped: bytes of the layers' blobs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from itertools import pairwise

import attrs

from pih.bundle import entries
from pih.bundle import layout as layouts
from pih_runtime.errors import SealError

# A compressor gives its bytes by the block, of some ten thousand; reading less at a time would tell nothing more.
_CHUNK = 1 << 12


@attrs.frozen
class Shares:
    """Bytes by component; together those of all layers."""

    of: dict[str, int]


def of_layout(layout: layouts.Layout, components: Mapping[str, str]) -> Shares:
    """Reads layers that are compressed, and checks their digests; of others the headers.

    components: by path, with a slash before it. What is of no component, such as a folder, counts to the file before
    it, at a layer's beginning to the one behind. Raises SealError for a layer that is damaged, or has no file of a
    component.
    """
    found: Counter[str] = Counter()
    for layer in layout.layers:
        named = [(components[path], at) for path, at in _places(layout, layer) if path in components]
        if not named:
            raise SealError(
                f"layer {layer.digest} has no file that the bundle lists", where=str(layout.path), fix=layouts.FIX
            )
        starts = [0, *(at for _, at in named[1:]), layer.size]
        for (component, _), (start, end) in zip(named, pairwise(starts), strict=True):
            found[component] += end - start
    return Shares(dict(found))


def _places(layout: layouts.Layout, layer: layouts.Layer) -> list[tuple[str, int]]:
    """(path of each entry, bytes of the blob up to its content)."""
    try:
        if layer.media_type == layouts.LAYER_TAR:
            with layouts.blob_path(layout.path, layer.digest).open("rb") as blob:
                return [(f"/{entry.path}", blob.tell()) for entry in entries.Reader(blob)]
        with layouts.archive(layout, layer, _CHUNK) as stream:
            return [(f"/{entry.path}", stream.taken) for entry in entries.Reader(stream)]
    except (OSError, ValueError) as problem:
        what = f"layer {layer.digest} was not made by pih, or is damaged: {problem}"
        raise SealError(what, where=str(layout.path), fix=layouts.FIX) from problem
