"""A carried file: the same bundle, the same bytes; engines read its payload."""

import hashlib
import io
import re
import tarfile

import pytest

from pih.bundle import layout as layouts
from pih.carry import export, header
from pih_runtime.errors import SealError, UsageError
from tests.support.carried import layout


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
