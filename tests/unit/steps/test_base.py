"""Step `base` on packages of a few bytes."""

from __future__ import annotations

import json
import tarfile

import pytest

from pih_runtime.errors import BuildError
from pih_steps import base, stdlib
from tests.unit.steps import deb_file, elf_file

ARCH = "x86_64-linux-gnu"
SOURCES = {
    name.replace(".", "/") + ("/__init__.py" if name == "encodings" else ".py"): b"import encodings\n"
    for name in (*stdlib.STARTUP, "encodings")
}


def _control(name, architecture="amd64", **fields):
    lines = {"Package": name, "Version": "1.0", "Architecture": architecture} | fields
    return "".join(f"{key}: {value}\n" for key, value in lines.items())


def _link(path, target):
    return (path, b"", {"type": tarfile.SYMTYPE, "linkname": target})


def _packages():
    library = "./usr/lib/python3.11"
    return {
        "python3.11-minimal": [
            ("./usr/bin/python3.11", elf_file.library("libc.so.6"), {"mode": 0o755}),
            ("./usr/share/doc/python3.11-minimal/copyright", b"free", {}),
            ("./usr/share/man/man1/python3.11.1.gz", b"manual", {}),
        ],
        "libpython3.11-stdlib": [
            *((f"{library}/{path}", text, {}) for path, text in SOURCES.items()),
            (f"{library}/wanted.py", b"import _fast\nif False:\n  import test\n", {}),
            (f"{library}/unwanted.py", b"", {}),
            (f"{library}/test/__init__.py", b"", {}),
            (f"{library}/lib-dynload/_fast.cpython-311-{ARCH}.so", elf_file.library("libx.so.1"), {}),
            (f"{library}/lib-dynload/_slow.cpython-311-{ARCH}.so", elf_file.library("libgone.so"), {}),
            _link("./usr/share/doc/libpython3.11-stdlib", "python3.11-minimal"),
        ],
        "libc6": [
            (f"./lib/{ARCH}/libc.so.6", elf_file.library("ld-linux-x86-64.so.2"), {"mode": 0o755}),
            (f"./lib/{ARCH}/ld-linux-x86-64.so.2", elf_file.library(), {"mode": 0o755}),
            _link("./lib64/ld-linux-x86-64.so.2", f"/lib/{ARCH}/ld-linux-x86-64.so.2"),
        ],
        "libx1": [
            (f"./usr/lib/{ARCH}/libx.so.1.2", elf_file.library("libc.so.6"), {}),
            _link(f"./usr/lib/{ARCH}/libx.so.1", "libx.so.1.2"),
            _link("./usr/share/doc/libx1", "gcc-12-base"),
        ],
        "libunused": [(f"./usr/lib/{ARCH}/libunused.so", elf_file.library(), {})],
    }


@pytest.fixture
def run(make_spec, tmp_path):
    def run(packages=None, *, architecture="amd64", libraries=None):
        artifacts = {}
        for name, entries in (packages or _packages()).items():
            artifacts[name] = tmp_path / f"{name}.deb"
            control = _control(name, architecture, **({"Source": "gcc-12 (12.2.0)"} if name == "libx1" else {}))
            artifacts[name].write_bytes(deb_file.package(*entries, control=control))
        needs = {"stdlib": {"wanted": "imported by app"}, "wheels": {}, "libraries": libraries or {}}
        (tmp_path / "imports").write_text(json.dumps(needs))
        base.run(make_spec(artifacts=artifacts, steps={"imports": tmp_path / "imports"}))
        return tmp_path / "out"

    return run


def test_what_is_reached_is_there_and_nothing_else(run, read_layer):
    entries, lines = read_layer(run())
    python = {path.removeprefix("usr/lib/python3.11/") for path in entries if path.startswith("usr/lib/python3.11/")}
    folders = {"encodings", "lib-dynload"}
    assert python == {f"{path}c" for path in SOURCES} | folders | {
        "wanted.pyc",
        f"lib-dynload/_fast.cpython-311-{ARCH}.so",
    }
    libraries = {path.rpartition("/")[2] for path in entries if path.startswith(f"usr/lib/{ARCH}/")}
    assert libraries == {"libc.so.6", "ld-linux-x86-64.so.2", "libx.so.1", "libx.so.1.2"}
    assert lines["/usr/lib/python3.11/wanted.pyc"]["reason"] == "imported by app"
    assert lines[f"/usr/lib/{ARCH}/libx.so.1.2"]["component"] == "libx1"
    assert not any("libunused" in path or "/man/" in path for path in entries)


def test_links_lead_to_their_place_from_any_root(run, read_layer):
    entries, lines = read_layer(run())
    assert entries["lib64"] == "usr/lib64"
    assert entries["usr/lib64/ld-linux-x86-64.so.2"] == f"../lib/{ARCH}/ld-linux-x86-64.so.2"
    assert entries["usr/bin/python3"] == "python3.11"
    assert entries[f"usr/lib/{ARCH}/libx.so.1"] == "libx.so.1.2"
    assert lines["/lib64"]["target"] == "usr/lib64"


def test_each_package_in_the_image_has_its_papers(run, read_layer):
    entries, _ = read_layer(run())
    status = {path.rpartition("/")[2] for path in entries if path.startswith("var/lib/dpkg/status.d/")}
    assert status == {"python3.11-minimal", "libpython3.11-stdlib", "libc6", "libx1"}
    assert entries["var/lib/dpkg/status.d/libc6"] == b"Package: libc6\nVersion: 1.0\nArchitecture: amd64\n"
    assert entries["usr/share/doc/libpython3.11-stdlib/copyright"] == b"free"
    assert b"gcc-12 (12.2.0)" in entries["usr/share/doc/libx1/copyright"]
    assert b"Runtime Library Exception" in entries["usr/share/doc/libx1/copyright"]


def test_the_user_and_the_places_to_mount_on_exist(run, read_layer):
    entries, _ = read_layer(run())
    assert b"pih:x:65532:65532:" in entries["etc/passwd"]
    assert b"ID=debian" in entries["etc/os-release"]
    for folder in ("proc", "sys", "dev", "tmp", "pih/weights"):
        assert entries[folder] is None


def test_a_library_that_a_wheel_needs_is_taken(run, read_layer):
    _, lines = read_layer(run(libraries={"libunused.so": "needed by server.speed"}))
    assert lines[f"/usr/lib/{ARCH}/libunused.so"]["reason"] == "needed by server.speed"


def test_a_missing_library_is_named_with_who_needs_it(run):
    with pytest.raises(BuildError, match=r"libgone\.so\.2, needed by server\.speed"):
        run(libraries={"libgone.so.2": "needed by server.speed"})


def test_a_missing_interpreter_is_named(run):
    packages = _packages()
    del packages["python3.11-minimal"]
    with pytest.raises(BuildError, match=r"no package has /usr/bin/python3\.11"):
        run(packages)


def test_two_packages_with_one_file_are_refused(run):
    packages = _packages() | {"twin": [(f"./usr/lib/{ARCH}/libc.so.6", b"", {})]}
    with pytest.raises(BuildError, match=r"libc\.so\.6 is in package twin and in libc6"):
        run(packages)


def test_packages_of_another_architecture_are_refused(run):
    with pytest.raises(BuildError, match="the packages are for riscv64") as failure:
        run(architecture="riscv64")
    assert "amd64" in failure.value.fix
