"""What is named as a bundle and is none, and disks without room."""

import resource
import tarfile
from contextlib import contextmanager

import pytest
from click.testing import CliRunner

from pih.bundle import archive
from pih.bundle.copy import copied
from pih.cli import diff, export, inspect, mirror, seal, size, verify, why
from pih.inspect.opened import opened
from pih.trust import keys
from pih_runtime.errors import SealError, UsageError, WorkerError
from tests.support import bundles
from tests.support.program import ROOT

COMMANDS = {
    "inspect": (inspect, []),
    "verify": (verify, []),
    "size": (size, []),
    "why": (why, ["libc6"]),
    "seal": (seal, ["-o", "never"]),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_what_can_be_no_bundle_is_a_slip_of_the_command_line(tmp_path, name):
    command, before = COMMANDS[name]
    (tmp_path / "empty").mkdir()
    (tmp_path / "x.pih").write_bytes(b"#!/bin/sh\n# smollm2\nSELF=0\n" + bytes(70_000))
    (tmp_path / "x.tar.zst").write_bytes(bytes.fromhex("28b52ffd") + bytes(100))
    for place, said in (
        (tmp_path / "none", "no such bundle"),
        ("/dev/zero", "neither a folder nor a file"),
        ("/etc", "no bundle in this folder"),
        (tmp_path / "empty", "no bundle in this folder"),
        (tmp_path / "x.pih", "carries a bundle"),
        (tmp_path / "x.tar.zst", "compressed with zstd"),
    ):
        with pytest.raises(UsageError, match=said):
            CliRunner().invoke(command.command, [*before, str(place)], standalone_mode=False, catch_exceptions=False)


def test_a_carried_file_is_not_exported_again(tmp_path):
    (tmp_path / "x.pih").write_bytes(b"#!/bin/sh\n# smollm2\nSELF=0\n")
    arguments = [str(tmp_path / "x.pih"), "-o", str(tmp_path / "y.pih")]
    with pytest.raises(UsageError, match="carries a bundle") as refused:
        CliRunner().invoke(export.command, arguments, standalone_mode=False, catch_exceptions=False)
    assert f"sh {tmp_path / 'x.pih'} verify" in refused.value.fix


def test_a_file_of_something_else_is_refused_in_one_line(tmp_path):
    (tmp_path / "x").write_bytes(b"hello" * 1000)
    with pytest.raises(SealError) as refused:
        opened(tmp_path / "x")
    assert refused.value.what == "no archive of an image layout: it is damaged, or no tar at all"


@contextmanager
def files_of_at_most(size):
    """The system refuses to write more to a file, with an errno, as it does on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_disk_without_room_is_not_a_damaged_archive(tmp_path):
    with tarfile.open(tmp_path / "x.tar", "w") as tar:
        tar.add(bundles.write(tmp_path / "work"), ".")
    with (
        files_of_at_most(100),
        pytest.raises(WorkerError, match="File too large") as full,
        archive.unpacked(tmp_path / "x.tar"),
    ):
        pass
    assert "TMPDIR" in full.value.fix
    assert full.value.exit_code == 9


def test_a_copy_without_room_is_told_in_one_line(tmp_path):
    layout = bundles.write(tmp_path / "work")
    with files_of_at_most(100), pytest.raises(WorkerError) as full:
        copied(layout, tmp_path / "out")
    assert full.value.what == "File too large"
    assert full.value.where.startswith(f"{tmp_path}/out/")
    assert {path.name for path in tmp_path.iterdir()} == {"work"}


def test_a_changed_version_file_is_named(tmp_path):
    layout = bundles.write(tmp_path / "work")
    (layout / "oci-layout").chmod(0o644)
    (layout / "oci-layout").write_text('{"imageLayoutVersion": "9"}')
    with pytest.raises(SealError) as refused:
        opened(layout)
    assert refused.value.where == str(layout / "oci-layout")


@pytest.mark.parametrize("load", [keys.load_private, keys.load_public])
def test_what_is_no_key_is_told_in_plain_words(tmp_path, load):
    (tmp_path / "x.pem").write_text("-----BEGIN PUBLIC KEY-----\nnothing\n-----END PUBLIC KEY-----\n")
    with pytest.raises(UsageError, match="it is not PEM, is damaged, or asks for a password"):
        load(tmp_path / "x.pem")
    with pytest.raises(UsageError, match="key: No such file or directory"):
        load(tmp_path / "none.pem")


@pytest.mark.parametrize(
    ("command", "arguments"),
    [
        (inspect, ["x", "--json", "--tree"]),
        (inspect, ["x", "--files", "--tree"]),
        (diff, ["x", "y", "--json", "--markdown"]),
    ],
)
def test_one_answer_has_one_form(command, arguments):
    with pytest.raises(UsageError, match="do not go together"):
        CliRunner().invoke(command.command, arguments, standalone_mode=False, catch_exceptions=False)


def test_verify_and_inspect_count_the_same_files(tmp_path):
    layout = str(bundles.write(tmp_path / "work"))
    listed = CliRunner().invoke(inspect.command, [layout, "--files"]).output.count("\n")
    assert f" {listed} are listed in /pih/bundle.json" in CliRunner().invoke(verify.command, [layout]).output


def test_every_decision_has_a_number_of_its_own():
    numbers = [page.name[:4] for page in (ROOT / "docs/decisions").glob("*.md")]
    assert len(set(numbers)) == len(numbers)


@pytest.mark.parametrize(
    ("command", "arguments"),
    [
        (export.command, ["x", "-o", ""]),
        (export.command, ["x", "-o", "a/"]),
        (export.command, ["x", "-o", "a", "--weights", ""]),
        (verify.command, ["x", "--policy", ""]),
        (inspect.command, ["x", "--html", ""]),
        (seal.command, ["x", "-o", "", "--key", "k"]),
        (size.command, ["x", "--budget", ""]),
        (mirror.export, ["--lock", "", "-o", "m"]),
        (mirror.import_, [""]),
    ],
)
def test_an_empty_text_names_no_path(command, arguments):
    run = CliRunner().invoke(command, arguments)
    assert run.exit_code == 2
    assert "names no path" in run.output or "is the name of a folder" in run.output


@pytest.mark.parametrize("size", ["", "100kB", "1MB", "4GiB", "-4GB"])
def test_a_size_that_parts_cannot_have(size):
    """Told before the bundle is read, with the least that there is."""
    with pytest.raises(UsageError, match="is no size of parts") as refused:
        CliRunner().invoke(export.command, ["x", "-o", "a.pih", f"--split={size}"], catch_exceptions=False)
    assert "2MB or more" in refused.value.fix


@pytest.mark.parametrize("mark", ["oci-layout", "pih/bundle.json"])
@pytest.mark.parametrize(
    ("command", "arguments"),
    [(export.command, ["x", "-o"]), (inspect.command, ["x", "--html"]), (mirror.export, ["--lock", "l", "-o"])],
)
def test_nothing_is_written_into_a_bundle(tmp_path, command, arguments, mark):
    (tmp_path / mark).parent.mkdir(exist_ok=True)
    (tmp_path / mark).write_text("{}")
    for place in ("e", "blobs/e"):
        with pytest.raises(UsageError, match="inside of the bundle"):
            CliRunner().invoke(command, [*arguments, str(tmp_path / place)], catch_exceptions=False)
