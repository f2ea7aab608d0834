"""Debian packages: what is read, and that a hostile one is refused with one clear error."""

from __future__ import annotations

import lzma
import tarfile
import zlib

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pih_runtime.errors import BuildError
from pih_steps import deb
from tests.unit.steps import deb_file

FILE = ("./usr/bin/tool", b"#!/bin/sh\n", {"mode": 0o4755})


def _read(tmp_path, raw):
    path = tmp_path / "tiny.deb"
    path.write_bytes(raw)
    return deb.read(path)


def test_files_links_and_control_are_read(tmp_path):
    package = _read(
        tmp_path,
        deb_file.package(
            ("./usr/", b"", {"type": tarfile.DIRTYPE}),
            FILE,
            ("./usr/share/text", b"text", {"mode": 0o640}),
            ("./usr/bin/link", b"", {"type": tarfile.SYMTYPE, "linkname": "tool"}),
            ("./usr/bin/hard", b"", {"type": tarfile.LNKTYPE, "linkname": "./usr/bin/tool"}),
        ),
    )
    assert package.control["Package"] == "tiny"
    assert package.control["Description"] == "a package\n for tests"
    assert package.members == (
        deb.Member("usr/bin/tool", 0o755, b"#!/bin/sh\n", ""),
        deb.Member("usr/share/text", 0o644, b"text", ""),
        deb.Member("usr/bin/link", 0o777, b"", "tool"),
        deb.Member("usr/bin/hard", 0o755, b"#!/bin/sh\n", ""),
    )


@pytest.mark.parametrize("suffix", ["", "__gz", "__xz"])
def test_each_compression_is_read(tmp_path, suffix):
    compressor = zlib.compressobj(wbits=31)
    pack = {"": bytes, "__gz": lambda data: compressor.compress(data) + compressor.flush(), "__xz": lzma.compress}
    control = lzma.compress(deb_file.tarball(("control", deb_file.CONTROL.encode(), {})))
    data = pack[suffix](deb_file.tarball(FILE))
    raw = deb_file.ar(debian_binary=b"2.0\n", control__tar__xz=control, **{f"data__tar{suffix}": data})
    assert [member.path for member in _read(tmp_path, raw).members] == ["usr/bin/tool"]


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        (("../../etc/passwd", b"x", {}), "leaves the root"),
        (("/etc/passwd", b"x", {}), "leaves the root"),
        (("./a", b"", {"type": tarfile.SYMTYPE, "linkname": "../../etc"}), "leaves the root"),
        (("./a", b"", {"type": tarfile.SYMTYPE, "linkname": "/usr/../../etc"}), "leaves the root"),
        (("./a", b"", {"type": tarfile.LNKTYPE, "linkname": "./b"}), "does not come before"),
        (("./dev/sda", b"", {"type": tarfile.BLKTYPE}), "neither file, folder nor link"),
        (("./pipe", b"", {"type": tarfile.FIFOTYPE}), "neither file, folder nor link"),
    ],
)
def test_members_outside_the_root_and_devices_are_refused(tmp_path, entry, words):
    with pytest.raises(BuildError, match=words) as failure:
        _read(tmp_path, deb_file.package(entry))
    assert "tiny.deb" in str(failure.value)
    assert failure.value.fix


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (b"", "no ar archive"),
        (b"!<arch>\n" + b"x" * 60, "bad ar header"),
        (deb_file.package(FILE)[:-30], "ends past the file"),
        (deb_file.ar(debian_binary=b"2.0\n"), "no control.tar"),
        (deb_file.ar(debian_binary=b"3.0\n"), "version 2"),
        (deb_file.package(FILE, control="Package: tiny\n"), "no Version"),
        (deb_file.package(FILE, control="nonsense\n"), "bad control line"),
    ],
)
def test_a_broken_package_says_what_is_wrong(tmp_path, raw, words):
    with pytest.raises(BuildError, match=words):
        _read(tmp_path, raw)


def test_a_package_that_unpacks_too_far_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(deb, "MAX_UNPACKED", 1 << 16)
    with pytest.raises(BuildError, match="unpacks to more than"):
        _read(tmp_path, deb_file.package(("./zeros", bytes(1 << 20), {})))


def test_a_missing_package_is_named(tmp_path):
    with pytest.raises(BuildError, match=r"absent\.deb"):
        deb.read(tmp_path / "absent.deb")


_WHOLE = deb_file.package(FILE)
_PLAIN = deb_file.ar(
    debian_binary=b"2.0\n",
    control__tar=deb_file.tarball(("control", deb_file.CONTROL.encode(), {})),
    data__tar=deb_file.tarball(FILE, ("./usr/bin/link", b"", {"type": tarfile.SYMTYPE, "linkname": "tool"})),
)


@settings(deadline=None)
@given(raw=st.sampled_from([_WHOLE, _PLAIN]), at=st.integers(0), junk=st.binary(min_size=1, max_size=16))
@example(raw=_PLAIN, at=8 + 60 + 4 + 60 + 124, junk=b"\xff" * 12)
def test_damage_anywhere_gives_a_package_or_a_build_error(tmp_path_factory, raw, at, junk):
    at %= len(raw)
    damaged = raw[:at] + junk + raw[at + len(junk) :]
    try:
        package = _read(tmp_path_factory.mktemp("deb"), damaged)
    except BuildError:
        return
    for member in package.members:
        assert not member.path.startswith("/")
        assert member.path != "."
        assert ".." not in member.path.split("/")
