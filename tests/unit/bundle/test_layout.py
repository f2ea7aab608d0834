"""A layout from anywhere: read if it is sound, refused with its reason if not."""

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pih.bundle import layout
from pih_runtime.errors import SealError
from tests.unit.bundle import layouts
from tests.unit.bundle.layouts import GZIP, TAR, tar

BUNDLE = {"schema": 1, "name": "tiny", "files": []}
BASE = tar([("bin/sh", b"#!")])
TOP = tar([("pih/bundle.json", json.dumps(BUNDLE).encode())])
WEIGHTS = tar([("pih/weights/weights.safetensors", b"w" * 1000)])


@pytest.fixture
def path(tmp_path):
    return tmp_path / "layout"


def a_layout(path, **options):
    return layouts.write(path, [BASE, TOP, WEIGHTS], types=[GZIP, GZIP, TAR], **options)


def test_a_sound_layout(path):
    image = layout.read(a_layout(path))
    assert image.digest == json.loads((path / "index.json").read_text())["manifests"][0]["digest"]
    assert [layer.diff_id for layer in image.layers] == [layouts.digest(data) for data in (BASE, TOP, WEIGHTS)]
    assert image.config["architecture"] == "amd64"
    assert layout.bundle_file(image) == BUNDLE
    layout.verify(image)


def test_things_attached_to_an_image_are_no_images(path):
    def change(part, value):
        if part == "index":
            value["manifests"].append({**value["manifests"][0], "artifactType": "application/spdx+json"})
        return value

    assert layout.bundle_file(layout.read(a_layout(path, change=change))) == BUNDLE


def changed(part, alter):
    def change(name, value):
        if name == part:
            alter(value)
        return value

    return change


WRONG = {
    "two images": changed("index", lambda v: v["manifests"].append(v["manifests"][0])),
    "no image": changed("index", lambda v: v["manifests"].clear()),
    "manifests is no list": changed("index", lambda v: v.update(manifests={})),
    "a digest that is a path": changed(
        "index", lambda v: v["manifests"][0].update(digest="sha256:../../../etc/passwd")
    ),
    "no digest": changed("index", lambda v: v["manifests"][0].pop("digest")),
    "another size": changed("index", lambda v: v["manifests"][0].update(size=1)),
    "negative size": changed("index", lambda v: v["manifests"][0].update(size=-1)),
    "size is a word": changed("index", lambda v: v["manifests"][0].update(size="1")),
    "size is a truth value": changed("index", lambda v: v["manifests"][0].update(size=True)),
    "no config": changed("manifest", lambda v: v.pop("config")),
    "config of another type": changed("manifest", lambda v: v["config"].update(mediaType="text/plain")),
    "layer of another type": changed("manifest", lambda v: v["layers"][0].update(mediaType="text/plain")),
    "layer is no object": changed("manifest", lambda v: v["layers"].append(1)),
    "a layer too many": changed("manifest", lambda v: v["layers"].append(v["layers"][0])),
    "no rootfs": changed("config", lambda v: v.pop("rootfs")),
    "other version": changed("version", lambda v: v.update(imageLayoutVersion="2.0.0")),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_does_not_hold_together_is_refused(path, name):
    a_layout(path, change=WRONG[name])
    with pytest.raises(SealError) as failure:
        layout.read(path)
    assert failure.value.exit_code == 8
    assert failure.value.fix


@pytest.mark.parametrize("file", ["index.json", "oci-layout"])
@pytest.mark.parametrize("content", [None, b"", b"[]", b"{", b"\xff", b"[" * 100_000])
def test_broken_documents_are_refused(path, file, content):
    a_layout(path)
    (path / file).unlink()
    if content is not None:
        (path / file).write_bytes(content)
    with pytest.raises(SealError, match=r"JSON|layout"):
        layout.read(path)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=100)
@given(
    data=st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda x: st.lists(x) | st.dictionaries(st.sampled_from(["manifests", "digest", "size", "mediaType"]), x),
    )
)
def test_any_json_is_refused_in_words(tmp_path_factory, data):
    path = a_layout(tmp_path_factory.mktemp("any") / "layout")
    (path / "index.json").write_text(json.dumps(data))
    with pytest.raises(SealError):
        layout.read(path)


@pytest.mark.parametrize("index", [0, 1, 2])
@pytest.mark.parametrize("damage", ["flip", "truncate", "append", "link", "missing"])
def test_a_damaged_layer_is_found(path, index, damage):
    image = layout.read(a_layout(path))
    blob = layout.blob_path(path, image.layers[index].digest)
    data = bytearray(blob.read_bytes())
    if damage == "flip":
        data[len(data) // 2] ^= 1
    elif damage == "truncate":
        del data[-1:]
    elif damage == "append":
        data += b"\0"
    blob.unlink()
    if damage == "link":
        (path / "copy").write_bytes(data)
        blob.symlink_to(path / "copy")
    elif damage != "missing":
        blob.write_bytes(data)
    with pytest.raises(SealError) as failure:
        layout.verify(image)
    assert image.layers[index].digest in str(failure.value)


def test_another_archive_than_the_configuration_says_is_found(path):
    change = changed("config", lambda v: v["rootfs"]["diff_ids"].reverse())
    image = layout.read(a_layout(path, change=change))
    with pytest.raises(SealError, match="other bytes"):
        layout.verify(image)


def test_an_image_that_pih_did_not_make(path):
    image = layout.read(layouts.write(path, [BASE]))
    with pytest.raises(SealError, match=r"bundle\.json"):
        layout.bundle_file(image)


@pytest.mark.parametrize("layer", [b"", b"no archive at all" * 100])
def test_a_layer_that_is_no_archive(path, layer):
    image = layout.read(layouts.write(path, [layer], types=[TAR]))
    with pytest.raises(SealError):
        layout.bundle_file(image)


def test_a_layer_made_to_fill_the_disk(path):
    image = layout.read(layouts.write(path, [bytes(300 << 20)]))
    with pytest.raises(SealError, match="200 times"):
        layout.verify(image)
