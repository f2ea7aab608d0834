"""A file or folder where a user wants it: whole or not at all, whatever the working folder, and nothing beside it."""

import errno
import signal

import pytest

from pih.build import placing
from pih.build.placing import placed
from pih_runtime.errors import SealError, UsageError


def anything(_):
    """All that is there may be replaced."""


def make(output, kind="folder", check=anything):
    with placed(output, check) as made:
        if kind == "file":
            made.write_text("after")
        else:
            made.mkdir()
            (made / "a").write_text("after")


def names(folder):
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*"))


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_it_takes_the_place_of_what_was_there_and_leaves_nothing_beside(tmp_path, kind):
    for _ in range(2):
        make(tmp_path / "new" / "out", kind)
    assert names(tmp_path / "new") == (["out"] if kind == "file" else ["out", "out/a"])


@pytest.mark.parametrize("name", ["../out", ".", "../elsewhere/../out"])
def test_a_path_from_within_the_folder_that_is_replaced(tmp_path, monkeypatch, name):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "out").mkdir()
    (tmp_path / "out/before").write_text("")
    monkeypatch.chdir(tmp_path / "out")
    make(placing.Path(name))
    assert names(tmp_path) == ["elsewhere", "out", "out/a"]


def test_what_came_meanwhile_is_asked_about_again(tmp_path):
    def check(place):
        if place.exists():
            raise UsageError("it is mine", where=str(place))

    def late():
        with placed(tmp_path / "out", check) as made:
            made.mkdir()
            (tmp_path / "out").write_text("mine")

    with pytest.raises(UsageError, match="it is mine"):
        late()
    assert names(tmp_path) == ["out"]
    assert (tmp_path / "out").read_text() == "mine"


@pytest.mark.parametrize("end", [OSError(errno.EIO, "torn"), KeyboardInterrupt(), SystemExit(128 + signal.SIGTERM)])
def test_an_end_between_the_two_renames_puts_back_what_was_there(tmp_path, monkeypatch, end):
    (tmp_path / "out").mkdir()
    (tmp_path / "out/before").write_text("")
    rename = placing.Path.rename

    def torn(self, target):
        if self.name == "new":
            raise end
        return rename(self, target)

    monkeypatch.setattr(placing.Path, "rename", torn)
    with pytest.raises(type(end)):
        make(tmp_path / "out")
    assert names(tmp_path) == ["out", "out/before"]


def failing(output, problem):
    with placed(output, anything) as made:
        made.mkdir()
        raise problem(made)


def test_errors_name_the_place_that_was_asked_for(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SealError) as seal:
        failing(placing.Path("out"), lambda made: SealError("wrong", where=f"{made}/index.json"))
    assert seal.value.where == "out/index.json"
    for filename in ("/store/sha256/x", None):  # a copy of two files that finds no room tells of its source
        with pytest.raises(OSError, match="full") as full:
            failing(placing.Path("out"), lambda _, name=filename: OSError(errno.ENOSPC, "full", name))
        assert full.value.filename == "out"
    with pytest.raises(OSError, match="torn") as source:
        failing(placing.Path("out"), lambda _: OSError(errno.EIO, "torn", "/store/sha256/x"))
    assert source.value.filename == "/store/sha256/x"
    (tmp_path / "file").write_text("")
    with pytest.raises(FileExistsError) as slip:
        make(placing.Path("file/out"))
    assert slip.value.filename == "file/out"
    assert names(tmp_path) == ["file"]
