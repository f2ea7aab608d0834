"""Archives made to fill the memory or the time of whoever reads them."""

import gzip
import io
import tarfile

import pytest

from pih import tarball
from pih.build.progress import silent
from pih.build.store import open_store
from pih.bundle import archive
from pih.carry import incoming
from pih.inspect.opened import opened
from pih.tarball import RefusedError, TarFile
from pih.trust import content
from pih_runtime.errors import FetchError, ResolutionError, SealError


def header(kind, size, name="x"):
    info = tarfile.TarInfo(name)
    info.type, info.size = kind, size
    return info.tobuf(tarfile.GNU_FORMAT)


def pax(**records):
    info = tarfile.TarInfo("x")
    info.pax_headers = records
    return info.tobuf(tarfile.PAX_FORMAT)


CHAIN = b"".join(header(tarfile.XHDTYPE, 0) for _ in range(3000))
SPARSE = {"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.name": "x", "GNU.sparse.realsize": "1"}
BOMBS = {
    "a PAX header": header(tarfile.XHDTYPE, 3 << 30),
    "a global PAX header": header(tarfile.XGLTYPE, 3 << 30),
    "a Solaris header": header(tarfile.SOLARIS_XHDTYPE, 3 << 30),
    "a long name": header(tarfile.GNUTYPE_LONGNAME, 3 << 30),
    "a long link": header(tarfile.GNUTYPE_LONGLINK, 3 << 30),
    "a name below nothing": header(tarfile.GNUTYPE_LONGNAME, -(1 << 40)),
    "a file below nothing": header(tarfile.REGTYPE, -512),
    "a size below nothing": pax(size="-1024"),
    "a size that is none": pax(size="nan"),
    "headers of headers": CHAIN + header(tarfile.REGTYPE, 0),
    "a sparse file": header(tarfile.GNUTYPE_SPARSE, 512),
    "a sparse file in PAX": pax(**SPARSE) + b"9999999\n" + b"0\n" * 5000,
}


@pytest.fixture(params=BOMBS)
def bomb(request, tmp_path):
    """A file of a few kilobytes that says it were gigabytes; what follows would be there, as a hole."""
    path = tmp_path / "bomb.tar"
    path.write_bytes(BOMBS[request.param])
    with path.open("r+b") as file:
        file.truncate(4 << 30)
    return path


def test_no_reader_takes_what_a_header_announces(bomb, tmp_path):
    with pytest.raises(SealError, match="no archive of an image layout"):
        opened(bomb)
    with pytest.raises(SealError, match="no archive of an image layout"), archive.unpacked(bomb):
        pass
    with pytest.raises(FetchError):
        incoming.bring(bomb, open_store(tmp_path / "store"), silent)
    with bomb.open("r+b") as file:
        file.truncate(1 << 20)
    with pytest.raises(ResolutionError):
        content.of_archive(bomb)


def test_names_that_are_long_are_read(tmp_path):
    for form in (tarfile.GNU_FORMAT, tarfile.PAX_FORMAT):
        sink = io.BytesIO()
        with tarfile.open(fileobj=sink, mode="w", format=form) as made:
            made.addfile(tarfile.TarInfo("x" * 4000))
        sink.seek(0)
        with TarFile.open(fileobj=sink) as read:
            assert [entry.name for entry in read] == ["x" * 4000]


def test_folders_count_too(tmp_path, monkeypatch):
    monkeypatch.setattr(tarball, "MOST_ENTRIES", 1000)
    folder = header(tarfile.DIRTYPE, 0, "blobs/")
    path = tmp_path / "x.tar.gz"
    path.write_bytes(gzip.compress(folder * 1001, 1))
    with pytest.raises(SealError, match="more than 1000 entries"):
        opened(path)
    with TarFile.open(fileobj=io.BytesIO(folder * 100)) as read:
        assert len(list(read)) == 100


def test_records_for_all_that_follows_do_not_add_up():
    record = tarfile.TarInfo.create_pax_global_header({"comment": "x" * 60_000})
    data = record + header(tarfile.REGTYPE, 0) * 2000
    with TarFile.open(fileobj=io.BytesIO(data)) as read, pytest.raises(RefusedError):
        list(read)
