"""What a component takes of an image as it is shipped, read from the layers' blobs."""

import random

import pytest

from pih.bundle import layout, shares
from pih_runtime.errors import SealError
from tests.unit.bundle import layouts
from tests.unit.bundle.layouts import GZIP, TAR, tar

NOISE = random.Random(7).randbytes(300_000)
TEXT = b"the same words again " * 20_000
BASE = tar([("usr", None), ("usr/noise", NOISE), ("usr/text", TEXT), ("usr/text2", ("->", "text"))])
TOP = tar([("pih", None), ("pih/bundle.json", b"{}"), ("pih/tail", NOISE[:50_000])])
WEIGHTS = tar([("pih", None), ("pih/weights", NOISE[:1000])])
COMPONENTS = {
    "/usr/noise": "noise",
    "/usr/text": "text",
    "/usr/text2": "text",
    "/pih/tail": "noise",
    "/pih/weights": "weights",
}


def written(path, **options):
    return layout.read(layouts.write(path / "layout", [BASE, TOP, WEIGHTS], types=[GZIP, GZIP, TAR], **options))


def test_each_component_has_the_bytes_that_its_files_became(tmp_path):
    image = written(tmp_path)
    found = shares.of_layout(image, COMPONENTS).of
    assert sum(found.values()) == sum(layer.size for layer in image.layers)
    assert found["weights"] == len(WEIGHTS)
    assert found["noise"] == pytest.approx(350_000, abs=8_000)  # noise stays as large as it is
    assert found["text"] < 10_000 < len(TEXT) / 10


def test_what_is_of_no_component_counts_to_the_file_before_it(tmp_path):
    image = written(tmp_path)
    without = {path: name for path, name in COMPONENTS.items() if name != "text"}
    assert shares.of_layout(image, without).of["noise"] == sum(layer.size for layer in image.layers[:2])


def test_a_layer_without_a_file_of_a_component(tmp_path):
    without = {path: name for path, name in COMPONENTS.items() if name != "weights"}
    with pytest.raises(SealError, match="has no file that the bundle lists"):
        shares.of_layout(written(tmp_path), without)


@pytest.mark.parametrize("layer", [0, 1, 2])
def test_a_damaged_layer(layer, tmp_path):
    image = written(tmp_path)
    path = layout.blob_path(image.path, image.layers[layer].digest)
    path.write_bytes(path.read_bytes()[:-900])
    with pytest.raises(SealError, match=f"layer {image.layers[layer].digest}"):
        shares.of_layout(image, COMPONENTS)
