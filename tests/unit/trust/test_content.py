"""A plugin's archive: canonical, whole, and nothing but what the manifest names."""

import io
import tarfile

import pytest

from pih.trust import content
from pih_runtime.errors import BuildError, ResolutionError
from pih_steps import plugins
from tests.unit.trust import made


def test_folder_and_archive_are_the_same_plugin(tmp_path):
    folder = made.plugin(tmp_path / "npu")
    held = content.of_folder(folder)
    (tmp_path / "npu.tar").write_bytes(held.archive)
    assert content.of_archive(tmp_path / "npu.tar") == held


def test_what_the_manifest_does_not_name_moves_nothing(tmp_path):
    folder = made.plugin(tmp_path / "npu")
    before = content.of_folder(folder).content.sha256
    (folder / "README.md").write_text("hello")
    (folder / "tests").mkdir()
    (folder / "tests" / "test_npu.py").write_text("")
    (folder / "pih_backend_npu" / "__pycache__").mkdir()
    (folder / "pih_backend_npu" / "__pycache__" / "x.pyc").write_bytes(b"x")
    assert content.of_folder(folder).content.sha256 == before
    (folder / "LICENSE").write_text("as you like")
    assert content.of_folder(folder).content.sha256 != before


@pytest.mark.parametrize(
    ("text", "whole"),
    [
        ("def start(context):\n    return {}\n", True),
        ("from pih_backend_npu.device import (\n    start,\n)\n", True),
        ("from pih_backend_npu.device import open as start\n", True),
        ("from pih_backend_npu.device import *\n", True),
        ("def begin(context):\n    return {}\n", False),
        ("def start_all(context):\n    return {}\n", False),
        ("", False),
    ],
)
def test_what_a_plugin_is_entered_by_is_there(tmp_path, text, whole):
    folder = made.plugin(tmp_path / "npu")
    (folder / "pih_backend_npu" / "__init__.py").write_text(text)
    if whole:
        assert content.of_folder(folder).content.manifest.id == "backend/npu"
        return
    with pytest.raises(ResolutionError, match=r"entered by pih_backend_npu:start, which .* does not have"):
        content.of_folder(folder)


@pytest.mark.parametrize("path", ["/usr", "/usr/lib", "/usr/lib/*", "/usr/lib/x86_64-linux-gnu", "/etc/passwd", "/*"])
def test_what_would_hide_a_file_of_every_image_is_refused(tmp_path, path):
    asked = made.MANIFEST.replace('devices = ["/dev/npu0"]', f'paths = ["{path}"]')
    with pytest.raises(ResolutionError, match=r"where every image has .* of its own") as caught:
        content.of_folder(made.plugin(tmp_path / "npu", text=asked))
    assert f'backend/npu asks for "{path}" of the host' in caught.value.what


def test_files_beside_those_of_every_image_may_be_asked_for(tmp_path):
    paths = '["/usr/lib/x86_64-linux-gnu/libnpu*", "/usr/lib/npu", "/opt/npu", "/pih/weights", "/proc"]'
    asked = made.MANIFEST.replace('devices = ["/dev/npu0"]', f"paths = {paths}")
    assert content.of_folder(made.plugin(tmp_path / "npu", text=asked)).content.manifest.permissions.paths


def test_unpacking_gives_the_files_back(tmp_path):
    held = content.of_folder(made.plugin(tmp_path / "npu"))
    (tmp_path / "a.tar").write_bytes(held.archive)
    plugins.unpack(tmp_path / "a.tar", tmp_path / "out")
    assert content.of_folder(tmp_path / "out") == held


def _archive(path, entries):
    with tarfile.open(path, "w:", format=tarfile.USTAR_FORMAT) as tar:
        for name, body, kind in entries:
            info = tarfile.TarInfo(name)
            info.type, info.size = kind, len(body)
            info.linkname = "/etc/passwd" if kind == tarfile.SYMTYPE else ""
            tar.addfile(info, io.BytesIO(body))
    return path


@pytest.mark.parametrize(
    "entry",
    [
        ("../evil", b"x", tarfile.REGTYPE),
        ("/evil", b"x", tarfile.REGTYPE),
        ("a/../../evil", b"x", tarfile.REGTYPE),
        ("link", b"", tarfile.SYMTYPE),
        ("hard", b"", tarfile.LNKTYPE),
        ("pipe", b"", tarfile.FIFOTYPE),
    ],
)
def test_an_archive_cannot_leave_its_folder(tmp_path, entry):
    path = _archive(tmp_path / "evil.tar", [entry])
    with pytest.raises(BuildError):
        plugins.unpack(path, tmp_path / "out")
    assert not (tmp_path / "evil").exists()


@pytest.mark.parametrize("extra", [("x", b"x", tarfile.REGTYPE), ("link", b"", tarfile.SYMTYPE)])
def test_an_archive_of_another_form_is_refused(tmp_path, extra):
    """Two readers can disagree about an archive that is not canonical."""
    folder = made.plugin(tmp_path / "npu")
    files = [(p.relative_to(folder).as_posix(), p.read_bytes(), tarfile.REGTYPE) for p in folder.rglob("*.*")]
    path = _archive(tmp_path / "npu.tar", [*files, extra])
    with pytest.raises(ResolutionError, match="not an archive as `pih catalog sign` packs it"):
        content.of_archive(path)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            ("pih_backend_npu:start", "pih_other:start"),
            "is entered by pih_other:start, which pih_backend_npu/__init__.py does not",
        ),
        (('package = "pih_backend_npu"', 'package = "pih_gone"'), "has no package pih_gone"),
        (('package = "pih_backend_npu"', 'package = "json"'), "has no package json"),
        (('id = "backend/npu"', 'id = "backend/../npu"'), "is not allowed"),
        (("/dev/npu0", "dev/npu0"), 'asks for "dev/npu0" of the host, which is no path'),
        (("/dev/npu0", "/dev/../etc"), "which is no path"),
        (("/dev/npu0", "/dev/npu0:/dev/mem"), "which is no path"),
        (("/dev/npu0", "/**"), "which is no path"),
        (('kind = "backend"', 'kind = "model"'), 'is not the kind in "backend/npu"'),
    ],
)
def test_a_plugin_that_is_not_whole_is_refused(tmp_path, change, words):
    folder = made.plugin(tmp_path / "npu", text=made.MANIFEST.replace(*change))
    with pytest.raises(ResolutionError, match=words):
        content.of_folder(folder)


def test_a_package_cannot_take_the_name_of_the_standard_library(tmp_path):
    folder = made.plugin(
        tmp_path / "npu", text=made.MANIFEST.replace('package = "pih_backend_npu"', 'package = "json"')
    )
    (folder / "pih_backend_npu").rename(folder / "json")
    with pytest.raises(ResolutionError, match="calls its package json, which is another's name"):
        content.of_folder(folder)
