"""A stranger's folder may hold what never ends, what waits for ever, and what leads elsewhere: refused, in bounds."""

import json
import os
import resource
import signal
from contextlib import contextmanager
from pathlib import Path

import pytest

from pih.conformance import suite
from pih.trust import add, content, index, keyring, keys, publish
from pih_runtime.errors import PihError, ProfileError, ResolutionError, SealError, UsageError
from tests.unit.trust import made


@contextmanager
def room(more):
    """No more address space than there is now, and `more` bytes."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + more, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


@pytest.fixture(autouse=True)
def bounds():
    """A gibibyte more of memory, and two minutes: what waits here waits for ever."""

    def late(_signal, _frame):
        raise TimeoutError("it waits")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(120)
    with room(1 << 30):
        yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def pipe(path):
    os.mkfifo(path)


def device(path):
    path.symlink_to("/dev/zero")


def huge(path):
    path.touch()
    os.truncate(path, 40 << 30)


def elsewhere(path):
    path.symlink_to("/etc/passwd")


def nowhere(path):
    path.symlink_to(path.with_name("gone"))


def everything(path):
    path.symlink_to("/")


BAD = [pipe, device, huge, elsewhere, nowhere]


def replaced(path, bad):
    path.unlink(missing_ok=True)
    bad(path)


@pytest.mark.parametrize("bad", BAD)
@pytest.mark.parametrize("name", ["plugin.toml", "pih_backend_npu/data.bin", "pins.json", "LICENSE"])
def test_a_folder_with_what_is_no_plain_file_of_its_own(tmp_path, name, bad):
    folder = made.plugin(tmp_path / "npu")
    replaced(folder / name, bad)
    with pytest.raises(ResolutionError, match="cannot read: ") as caught:
        content.of_folder(folder)
    assert caught.value.where == str(folder / name)


def test_a_package_that_is_a_link_is_not_walked(tmp_path):
    folder = made.plugin(tmp_path / "npu", text=made.MANIFEST.replace("pih_backend_npu", "pih_other"))
    everything(folder / "pih_other")
    with pytest.raises(ResolutionError, match="a link leads out of the plugin's folder"):
        content.of_folder(folder)


def test_a_folder_of_too_many_files(tmp_path, monkeypatch):
    folder = made.plugin(tmp_path / "npu")
    monkeypatch.setattr(content, "_MAX_FILES", 3)
    for number in range(2):
        (folder / "pih_backend_npu" / f"{number}.py").touch()
    assert content.of_folder(folder)
    (folder / "pih_backend_npu" / "3.py").touch()
    with pytest.raises(ResolutionError, match="more than 3 files"):
        content.of_folder(folder)


@pytest.mark.parametrize("name", [b"\xff.py", b"a\x1b[2J.py", b"x" * 250 + b".py"])
def test_a_name_that_no_archive_can_hold_or_nobody_see(tmp_path, name):
    folder = made.plugin(tmp_path / "npu")
    deep = folder / "pih_backend_npu" / ("y" * 100)
    deep.mkdir()
    (deep / os.fsdecode(name)).touch()
    with pytest.raises(ResolutionError):
        content.of_folder(folder)


def test_pins_of_no_end(tmp_path):
    folder = made.plugin(tmp_path / "npu")
    (folder / "pins.json").touch()
    os.truncate(folder / "pins.json", 5 << 20)
    with pytest.raises(ResolutionError, match=r"pins.json has more than 4 MiB"):
        content.of_folder(folder)


def test_many_large_plugins_are_looked_at_one_after_the_other(tmp_path):
    for number in range(16):
        folder = made.plugin(tmp_path / "mine" / str(number), version=f"0.{number}")
        (folder / "pih_backend_npu" / "data.bin").touch()
        os.truncate(folder / "pih_backend_npu" / "data.bin", 40 << 20)
    with room(400 << 20):
        known = made.catalog_of(tmp_path, '\n[[plugins]]\npath = "mine"\ntrust = "local"\n')
    assert len(known.origins) == 16


def test_a_link_within_the_folder_is_a_file(tmp_path):
    folder = made.plugin(tmp_path / "npu")
    (folder / "pih_backend_npu" / "same.py").symlink_to("__init__.py")
    assert content.of_folder(folder) != content.of_folder(made.plugin(tmp_path / "other"))


@pytest.mark.parametrize("bad", [pipe, device, huge, nowhere])
def test_what_is_no_archive(tmp_path, bad):
    bad(tmp_path / "npu.tar")
    with pytest.raises(ResolutionError, match="not a plugin's archive"):
        content.of_archive(tmp_path / "npu.tar")


@pytest.mark.parametrize("bad", [pipe, device, huge, nowhere])
@pytest.mark.parametrize("load", [keys.load_private, keys.load_public, keys.load_either])
def test_what_is_no_key(tmp_path, bad, load):
    bad(tmp_path / "k.pem")
    with pytest.raises(UsageError, match=": not a"):
        load(tmp_path / "k.pem")


def empty(_folder):
    pass


def names_nothing(folder):
    (folder / index.INDEX).write_text(json.dumps({"schema": 1, "name": "v", "plugins": []}))


def pipe_for_an_index(folder):
    pipe(folder / index.INDEX)


def plugin_that_never_ends(folder):
    replaced(made.plugin(folder / "npu") / "plugin.toml", device)


def plugin_that_waits(folder):
    replaced(made.plugin(folder / "npu") / "plugin.toml", pipe)


def pipe_for_an_archive(folder):
    made.plugin(folder / "npu")
    publish.sign_catalog(folder, "vendor", made.key(folder))
    text = (folder / index.INDEX).read_text()
    pipe(folder / "npu.tar")
    (folder / index.INDEX).write_text(text.replace('"path": "npu"', '"path": "npu.tar"'))


def name_that_is_too_long(folder):
    pipe_for_an_archive(folder)
    (folder / index.INDEX).write_text((folder / index.INDEX).read_text().replace("npu.tar", "n" * 5000))


NOT_TO_BE_BELIEVED = [
    empty, name_that_is_too_long, names_nothing, pipe_for_an_index, plugin_that_never_ends, plugin_that_waits,
    pipe_for_an_archive,
]  # fmt: skip


@pytest.mark.parametrize("make", NOT_TO_BE_BELIEVED)
def test_verifying_never_passes_what_it_did_not_read(tmp_path, make):
    folder = tmp_path / "shelf"
    folder.mkdir()
    make(folder)
    with pytest.raises(SealError) as caught:
        add.verified(folder, keyring.Keyring())
    assert caught.value.exit_code == 8


@pytest.mark.parametrize("make", [empty, pipe_for_an_index, plugin_that_never_ends, plugin_that_waits])
def test_nothing_of_it_is_signed(tmp_path, make):
    folder = tmp_path / "shelf"
    folder.mkdir()
    make(folder)
    before = sorted(folder.iterdir())
    with pytest.raises(PihError):
        publish.sign_catalog(folder, "vendor", made.key(tmp_path))
    assert sorted(folder.iterdir()) == before


@pytest.mark.parametrize("make", NOT_TO_BE_BELIEVED)
def test_a_catalog_that_went_bad_stops_no_lock_that_does_not_want_it(tmp_path, make):
    folder = tmp_path / "shelf"
    folder.mkdir()
    make(folder)
    ring = keyring.Keyring(catalogs=(keyring.Added("vendor", str(folder), "ed25519:" + "0" * 32),))
    known = made.catalog_of(tmp_path, "", ring)
    (refused,) = known.refused
    assert refused.source == "catalog vendor"


def test_a_place_that_the_system_refuses_stops_no_lock_either(tmp_path):
    ring = keyring.Keyring(catalogs=(keyring.Added("vendor", "/" + "a" * 300, "ed25519:" + "0" * 32),))
    (refused,) = made.catalog_of(tmp_path, "", ring).refused
    assert "File name too long" in refused.why


@pytest.mark.parametrize("path", ["/dev/zero", "pipe"])
def test_a_profile_that_names_what_never_ends(tmp_path, path):
    pipe(tmp_path / "pipe")
    with pytest.raises(ResolutionError, match="not a plain file"):
        made.catalog_of(tmp_path, f'\n[[plugins]]\npath = "{path}"\ntrust = "local"\n')


@pytest.mark.parametrize("path", ["loop", "a" * 300])
def test_a_profile_that_names_what_nobody_can_open(tmp_path, path):
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(ProfileError, match="beside the profile") as caught:
        made.catalog_of(tmp_path, f'\n[[plugins]]\npath = "{path}"\ntrust = "local"\n')
    assert caught.value.where.startswith(f"{tmp_path}/p.toml:")


@pytest.mark.parametrize("bad", BAD)
@pytest.mark.parametrize("name", ["plugin.toml", "pih_backend_npu/data.bin", "other.py"])
def test_the_suite_refuses_it_too(tmp_path, bad, name):
    text = made.MANIFEST.replace("pih_backend_npu:start", "other:start")
    folder = made.plugin(tmp_path / "npu", text=text)
    (folder / "other.py").write_text("def start(context): ...\n")
    replaced(folder / name, bad)
    assert [check.outcome for check in suite.check(folder, made.ROOT, bring=None)][-1] == "failed"
