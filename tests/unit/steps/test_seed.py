"""The seed of outer builders."""

import hashlib
import io
import tarfile

import pytest

from pih_runtime.errors import BuildError
from pih_steps import seed
from tests.unit.steps import deb_file


@pytest.fixture
def package(tmp_path):
    path = tmp_path / "tools.deb"
    path.write_bytes(
        deb_file.package(
            ("./bin/tool", b"static", {"mode": 0o4755}),
            ("./bin/link", b"", {"type": tarfile.SYMTYPE, "linkname": "tool"}),
        )
    )
    return path


def test_it_is_an_archive_of_the_one_executable(package):
    with tarfile.open(fileobj=io.BytesIO(seed.archive(package, "bin/tool"))) as archive:
        (member,) = archive.getmembers()
        assert (member.name, member.mode, member.mtime, member.uid) == ("busybox", 0o755, 0, 0)
        assert archive.extractfile(member).read() == b"static"


def test_its_bytes_stay_what_they_are(package):
    digest = hashlib.sha256(seed.archive(package, "bin/tool")).hexdigest()
    assert digest == "3aa5a9f8cb95b1bca30f0990dd4a65e3cb410065e537d4faf1913b4c5ee1d23b"


@pytest.mark.parametrize("member", ["bin/none", "bin/link"])
def test_a_package_without_the_file_is_refused(package, member):
    with pytest.raises(BuildError) as caught:
        seed.archive(package, member)
    assert str(caught.value) == f"{package}: the package has no file {member}\n  to fix: write the lock again: pih lock"
