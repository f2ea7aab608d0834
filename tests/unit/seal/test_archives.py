"""Archives of image layouts that are something else, or more than that."""

import bz2
import gzip
import io
import lzma
import tarfile

import pytest

from pih.bundle import archive
from pih.inspect.opened import opened
from pih.seal import verify
from pih_runtime.errors import SealError


def packed(path, members, mode="w"):
    """A tar of (TarInfo, bytes)."""
    with tarfile.open(path, mode) as tar_file:
        for info, data in members:
            info.size = len(data)
            tar_file.addfile(info, io.BytesIO(data))
    return path


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("../index.json", tarfile.REGTYPE),
        ("/index.json", tarfile.REGTYPE),
        ("blobs/sha256/../../x", tarfile.REGTYPE),
        ("blobs/sha256/" + "g" * 64, tarfile.REGTYPE),
        ("index.json", tarfile.SYMTYPE),
        ("index.json", tarfile.LNKTYPE),
        ("index.json", tarfile.CHRTYPE),
        ("index.json", tarfile.FIFOTYPE),
        ("README", tarfile.REGTYPE),
    ],
)
def test_an_archive_of_something_else(tmp_path, name, kind):
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, "/etc/passwd"
    path = packed(tmp_path / "x.tar", [(info, b"")])
    with pytest.raises(SealError, match="no part of an image layout"):
        opened(path)


def test_an_archive_with_a_name_twice(tmp_path):
    path = packed(
        tmp_path / "x.tar", [(tarfile.TarInfo("index.json"), b"{}"), (tarfile.TarInfo("./index.json"), b"[]")]
    )
    with pytest.raises(SealError, match="is there twice"):
        opened(path)


def test_an_archive_that_would_fill_the_disk(tmp_path):
    large = tarfile.TarInfo("index.json")
    path = packed(tmp_path / "x.tar.gz", [(large, bytes(100 << 20))], "w:gz")
    with pytest.raises(SealError, match="too large for this archive"):
        opened(path)
    sparse = tarfile.TarInfo("index.json")
    sparse.type = tarfile.GNUTYPE_SPARSE
    with pytest.raises(SealError):
        opened(packed(tmp_path / "y.tar", [(sparse, bytes(512))]))


def test_an_archive_of_a_sealed_layout_is_verified_like_it(sealed, tmp_path):
    with tarfile.open(tmp_path / "x.tar.xz", "w:xz") as tar_file:
        tar_file.add(sealed, ".")
    with archive.unpacked(tmp_path / "x.tar.xz") as folder:
        assert verify.whole(folder).documents == verify.whole(sealed).documents


def test_a_file_of_zeros_is_no_archive(tmp_path):
    """A hole of 16 GiB: as a tar it has ended, as an archive of xz its padding would have no end."""
    with (tmp_path / "x.tar").open("wb") as file:
        file.truncate(16 << 30)
    with pytest.raises(SealError, match="bytes behind its end"), archive.unpacked(tmp_path / "x.tar"):
        pass


@pytest.mark.parametrize("mode", ["w", "w:gz", "w:xz", "w:bz2"])
def test_bytes_behind_the_end_of_an_archive(sealed, tmp_path, mode):
    """Zeros may fill it up, as tar does; anything else is of nobody that the seal knows."""
    tail = {"w": lambda data: data, "w:gz": gzip.compress, "w:xz": lzma.compress, "w:bz2": bz2.compress}[mode]
    path = tmp_path / "x.tar"
    with tarfile.open(path, mode) as tar_file:
        tar_file.add(sealed, ".")
    whole = path.read_bytes()
    path.write_bytes(whole + tail(bytes(100_000)))
    with archive.unpacked(path):
        pass
    for more in (b"A", bytes(100_000) + b"A"):
        path.write_bytes(whole + tail(more))
        with pytest.raises(SealError, match="bytes behind its end"), archive.unpacked(path):
            pass
