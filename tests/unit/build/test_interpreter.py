"""The pinned interpreter: unpacked once, found below its root, never outside it."""

import io
import os
import tarfile

import pytest

from pih.build import interpreter
from pih.build.progress import Dropped
from pih.build.store import measure, open_store
from pih.lock import Artifact
from pih_runtime.errors import BuildError, FetchError


def deb(entries):
    """A .deb with these (path, content | link target as a str)."""

    def tarball(files):
        stream = io.BytesIO()
        with tarfile.open(fileobj=stream, mode="w:gz") as tar:
            for path, content in files:
                member = tarfile.TarInfo(path)
                if isinstance(content, str):
                    member.type, member.linkname = tarfile.SYMTYPE, content
                    tar.addfile(member)
                else:
                    member.size, member.mode = len(content), 0o755
                    tar.addfile(member, io.BytesIO(content))
        return stream.getvalue()

    control = b"Package: a\nVersion: 1\nArchitecture: amd64\n"
    data = b"!<arch>\n"
    parts = (
        ("debian-binary", b"2.0\n"),
        ("control.tar.gz", tarball([("./control", control)])),
        ("data.tar.gz", tarball(entries)),
    )
    for name, content in parts:
        head = f"{name:16}{0:<12}{0:<6}{0:<6}{'100644':8}{len(content):<10}`\n"
        data += head.encode() + content + b"\n" * (len(content) % 2)
    return data


GOOD = (
    ("./lib/x86_64-linux-gnu/ld-linux-x86-64.so.2", b"loader"),
    ("./lib64/ld-linux-x86-64.so.2", "/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2"),
    ("./usr/lib/x86_64-linux-gnu/libz.so.1", b"z"),
    ("./usr/bin/python3.11", b"python"),
)


@pytest.fixture
def store(tmp_path):
    return open_store(tmp_path / "store")


def added(store, tmp_path, entries):
    path = tmp_path / "a.deb"
    path.write_bytes(deb(entries))
    store.add_file(path)
    return Artifact("a", "1", "deb", *measure(path), (), "", ())


def test_it_is_started_by_its_own_loader(store, tmp_path):
    root = interpreter.unpack([added(store, tmp_path, GOOD)], store)
    assert interpreter.command(root) == [
        str(root / "lib64/ld-linux-x86-64.so.2"),
        "--library-path",
        f"{root / 'usr/lib/x86_64-linux-gnu'}:{root / 'lib/x86_64-linux-gnu'}",
        str(root / "usr/bin/python3.11"),
        "-I",
        "-B",
        "-X",
        "utf8",
    ]
    assert (root / "lib64/ld-linux-x86-64.so.2").read_text() == "loader"


def test_it_is_unpacked_once(store, tmp_path):
    artifact = added(store, tmp_path, GOOD)
    root = interpreter.unpack([artifact], store)
    store.path(artifact.sha256).unlink()
    assert interpreter.unpack([artifact], store) == root


def test_its_key_is_of_its_packages_in_any_order():
    first, second = (Artifact(n, "1", "deb", n * 64, 1, (), "", ()) for n in "ab")
    assert interpreter.key([first, second]) == interpreter.key([second, first])
    assert interpreter.key([first]) != interpreter.key([first, second])


def test_packages_without_python(store, tmp_path):
    root = interpreter.unpack([added(store, tmp_path, GOOD[:2])], store)
    with pytest.raises(BuildError, match="python3"):
        interpreter.command(root)


def test_a_package_that_writes_through_a_link_is_refused(store, tmp_path):
    artifact = added(store, tmp_path, [("./usr/link", "lib"), ("./usr/link/file", b"x")])
    with pytest.raises(BuildError, match="cannot be unpacked") as failure:
        interpreter.unpack([artifact], store)
    assert failure.value.exit_code == 7
    assert list((store.root / "python").iterdir()) == []


def test_a_damaged_package_is_not_unpacked(store, tmp_path):
    artifact = added(store, tmp_path, GOOD)
    path = store.path(artifact.sha256)
    size = path.stat().st_size
    path.unlink()
    path.write_bytes(bytes(size))
    with pytest.raises(FetchError, match="damaged"):
        interpreter.unpack([artifact], store)


def test_a_step_sees_no_setting_of_the_user(tmp_path):
    assert set(interpreter.environment(tmp_path)) == {"HOME", "TMPDIR", "LC_ALL", "TZ", "SOURCE_DATE_EPOCH"}


def test_a_damaged_one_is_unpacked_again(store, tmp_path):
    artifact = added(store, tmp_path, GOOD)
    root = interpreter.unpack([artifact], store)
    path = root / "usr/bin/python3.11"
    times = path.stat()
    path.write_bytes(b"pythom")
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    events = []
    assert interpreter.unpack([artifact], store, events.append) == root
    assert path.read_bytes() == b"python"
    assert events == [Dropped("the interpreter")]


def test_an_empty_folder_in_its_place_is_replaced(store, tmp_path):
    artifact = added(store, tmp_path, GOOD)
    store.place("python", interpreter.key([artifact])).mkdir()
    assert interpreter.command(interpreter.unpack([artifact], store))
