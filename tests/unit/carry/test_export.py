"""A carried file: the same bundle, the same bytes; engines read its payload."""

import hashlib
import io
import re
import tarfile

import pytest

from pih.bundle import layout as layouts
from pih.carry import export, header
from pih_runtime.errors import SealError, UsageError
from pih_steps.lower import safetensors
from tests.support.carried import layout, packed


@pytest.fixture
def image(tmp_path):
    return layouts.read(layout(tmp_path / "layout"))


def test_same_bundle_same_bytes(image, tmp_path):
    for name in "ab":
        (tmp_path / name).mkdir()
    one = export.export(image, tmp_path / "a" / "one.pih", weights=None, split=0)
    two = export.export(image, tmp_path / "b" / "two.pih", weights=None, split=0)
    assert one.files[0].read_bytes() == two.files[0].read_bytes()
    assert one.header == header.digest(one.files[0].read_bytes()[: header.SIZE])


def test_the_payload_is_an_archive_of_the_layout(image, tmp_path):
    data = export.export(image, tmp_path / "x.pih", weights=None, split=0).files[0].read_bytes()
    with tarfile.open(fileobj=io.BytesIO(data[header.SIZE :])) as tar:
        names = tar.getnames()
        for name in names:
            assert tar.extractfile(name).read() == (image.path / name).read_bytes()
    digest = image.digest.removeprefix("sha256:")
    assert f"blobs/sha256/{digest}" in names
    assert hashlib.sha256((image.path / "blobs/sha256" / digest).read_bytes()).hexdigest() == digest


def test_a_damaged_blob_is_not_exported(image, tmp_path):
    path = layouts.blob_path(image.path, image.layers[-1].digest)
    data = path.read_bytes()
    path.chmod(0o644)
    path.write_bytes(data.replace(b"weights weights", b"weights Weights", 1))
    with pytest.raises(SealError, match="other bytes"):
        export.export(image, tmp_path / "x.pih", weights=None, split=0)
    assert not (tmp_path / "x.pih").exists()


def test_weights_for_an_image_that_has_them(image, tmp_path):
    with pytest.raises(UsageError, match="inside"):
        export.export(image, tmp_path / "x.pih", weights=tmp_path / "w", split=0)


def test_parts_too_small(image, tmp_path):
    with pytest.raises(UsageError, match="1 MiB"):
        export.export(image, tmp_path / "x.pih", weights=None, split=1000)


def test_what_is_said_of_parts_that_are_too_small_helps(image, tmp_path):
    with pytest.raises(UsageError) as refused:
        export.export(image, tmp_path / "x.pih", weights=None, split=10**6)
    (least,) = re.findall(r"([0-9]+)MB or more", refused.value.fix)
    assert export.export(image, tmp_path / "x.pih", weights=None, split=int(least) * 10**6).files


def bytes_changed(path):
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


def other_tensors(path):
    packed(path, bytes(100))


def one_more_tensor(path):
    data = bytes(6000)
    entries = [safetensors.Entry(name, "U8", (6000,), 6000, lambda: [data]) for name in ("table", "more")]
    safetensors.write(path, entries, {})


def longer(path):
    path.write_bytes(path.read_bytes() + bytes(64))


def no_safetensors(path):
    with tarfile.open(path, "w") as archive:
        archive.add(path.with_suffix(".digests"), "npu")


def other_digests(path):
    beside = path.with_suffix(".digests")
    beside.write_bytes(beside.read_bytes()[:-2] + b"\n")


PINNED_OR_NOT = {
    bytes_changed: "its bytes are not those of",
    other_tensors: "plan needs tensor 'table' of 6000 bytes, the file has 100 bytes of it",
    one_more_tensor: "plan has no tensor 'more', the file has",
    longer: "no packed weights: bad safetensors header: 64 bytes belong to no tensor",
    no_safetensors: "no packed weights: bad safetensors header: its length",
    other_digests: "no digests of the weights",
}


@pytest.mark.parametrize("pinned", [False, True])
@pytest.mark.parametrize("change", PINNED_OR_NOT)
def test_weights_that_the_worker_would_refuse_are_not_exported(tmp_path, change, pinned):
    path, output = tmp_path / "packed.safetensors", tmp_path / "x.pih"
    pin = packed(path) if pinned else ""
    image = layouts.read(layout(tmp_path / "layout", delivery="separate", weights=b"", pin=pin))
    packed(path)
    assert export.export(image, tmp_path / "good.pih", weights=path, split=0).files
    change(path)
    with pytest.raises(SealError, match=PINNED_OR_NOT[change]) as refused:
        export.export(image, output, weights=path, split=0)
    assert "pih weights pack" in refused.value.fix
    assert {item.suffix for item in tmp_path.iterdir() if item.is_file()} == {".safetensors", ".digests", ".pih"}
    assert not output.exists()


def test_weights_without_digests_are_exported_where_nothing_pins_them(tmp_path):
    path, output = tmp_path / "packed.safetensors", tmp_path / "x.pih"
    pin = packed(path)
    path.with_suffix(".digests").unlink()
    free = layouts.read(layout(tmp_path / "free", delivery="separate", weights=b""))
    assert export.export(free, output, weights=path, split=0).files
    pinned = layouts.read(layout(tmp_path / "pinned", delivery="separate", weights=b"", pin=pin))
    with pytest.raises(SealError, match="no digests of the weights: No such file") as refused:
        export.export(pinned, tmp_path / "y.pih", weights=path, split=0)
    assert refused.value.where.endswith("packed.digests")


def test_other_weights_with_digests_of_their_own_are_not_those_that_are_pinned(tmp_path):
    path = tmp_path / "packed.safetensors"
    pin = packed(path)
    image = layouts.read(layout(tmp_path / "layout", delivery="separate", weights=b"", pin=pin))
    other = packed(path, b"PACKED" * 1000)
    with pytest.raises(SealError, match=f"they are {other}, and the image pins {pin}"):
        export.export(image, tmp_path / "x.pih", weights=path, split=0)
