"""What an installation writes over or takes away is its own."""

import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from tests.support.carried import SHELL, carried, layout, sh
from tests.support.team import Team, of_layout
from tests.support.waiting import until


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("made")
    return {text: carried(folder, text) for text in ("one", "two")}


def tree(folder):
    """Names below a folder, with the text or target of each."""
    return {
        path.relative_to(folder).as_posix(): str(path.readlink())
        if path.is_symlink()
        else path.is_file() and path.read_text()
        for path in folder.rglob("*")
    }


USER = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"]


def open_to_all(folder):
    for path in (folder, *folder.parents):
        if path.stat().st_mode & 0o055 != 0o055 and path.stat().st_uid == os.getuid():
            path.chmod(path.stat().st_mode | 0o055)


def put(path, what):
    path.parent.mkdir(parents=True, exist_ok=True)
    if what == "folder":
        path.mkdir()
    elif what == "link":
        path.symlink_to("elsewhere")
    else:
        path.write_text("precious")


NAMES = ("pih", "current", "generations", "generations/7.partial", "generations/7", ".pih")
THERE = {(name, what) for name in NAMES for what in ("file", "folder", "link")}


# an empty folder .pih is what an interrupted installation leaves
@pytest.mark.parametrize(("name", "what"), sorted(THERE - {(".pih", "folder")}))
def test_what_was_there_before_is_left_alone(made, tmp_path, name, what):
    prefix = tmp_path / "q"
    put(prefix / name, what)
    before = tree(prefix)
    for verb in ("install", "upgrade", "uninstall"):
        run = sh(made["one"], verb, "--prefix", prefix, check=False)
        assert (run.returncode, "to fix" in run.stderr) == (2, True), run.stderr
        assert "unpack" not in run.stderr
        assert tree(prefix) == before
    assert f"{prefix}/{name.split('/')[0]}" in sh(made["one"], "install", "--prefix", prefix, check=False).stderr


@pytest.mark.parametrize("what", ["file", "folder", "link"])
@pytest.mark.parametrize("name", ["pih", "current"])
def test_what_took_the_place_of_a_link_is_left_alone(made, tmp_path, name, what):
    prefix = tmp_path / "q"
    sh(made["one"], "install", "--prefix", prefix)
    (prefix / name).unlink()
    put(prefix / name, what)
    before = tree(prefix)
    for file, verb in ((made["one"], "install"), (made["two"], "upgrade"), (made["one"], "uninstall")):
        run = sh(file, verb, "--prefix", prefix, check=False)
        assert (run.returncode, "would be in its way" in run.stderr) == (2, True), run.stderr
        assert tree(prefix) == before


def test_other_files_of_the_prefix_stay(made, tmp_path):
    prefix = tmp_path / "q"
    for name in ("note", ".lock", ".unit", ".switch", "folder/note"):
        put(prefix / name, "file")
    sh(made["one"], "install", "--prefix", prefix)
    put(prefix / "generations/note.partial", "file")
    sh(made["two"], "upgrade", "--prefix", prefix)
    said = sh(prefix / "pih", "uninstall").stderr
    assert "which holds files that are not of pih" in said
    assert {name for name, text in tree(prefix).items() if text == "precious"} == {
        "note", ".lock", ".unit", ".switch", "folder/note", "generations/note.partial"
    }  # fmt: skip
    assert not (prefix / "pih").is_symlink()


def test_what_an_interrupted_first_installation_left_is_taken_over(made, tmp_path):
    prefix = tmp_path / "q"
    (prefix / ".pih").mkdir(parents=True)
    sh(made["one"], "install", "--prefix", prefix)
    assert sh(prefix / "pih", "start", "--no-sandbox").stdout == "worker of one\n"


def test_facts_are_those_of_the_generations_own_script(made, tmp_path):
    prefix = tmp_path / "q"
    sh(made["one"], "install", "--prefix", prefix)
    about = prefix / "generations/1/about"
    text = about.read_text()
    about.write_text(f"name other\nversion 9\nimage {'0' * 64}\n" + text.replace("signed no", "signed yes"))
    said = sh(prefix / "pih", "status").stdout
    assert "tiny 0.1.0" in said
    assert "integrity only" in said
    found = sh(prefix / "pih", "status", "--check", check=False)
    assert (found.returncode, "generations/1/about" in found.stderr) == (8, True)
    assert "installed anew" in sh(made["one"], "install", "--prefix", prefix).stderr


def test_a_key_that_is_given_later_is_noted(tmp_path):
    team, prefix = Team(tmp_path), tmp_path / "q"
    file = of_layout(team.seal(layout(tmp_path / "layout")), tmp_path / "x.pih")
    sh(file, "install", "--prefix", prefix)
    assert "integrity only" in sh(prefix / "pih", "status").stdout
    sh(file, "install", "--prefix", prefix, "--key", team.public)
    assert "signed" in sh(prefix / "pih", "status", "--check").stdout
    sh(file, "install", "--prefix", prefix)
    assert "signed" in sh(prefix / "pih", "status", "--check").stdout


def test_a_file_with_rights_of_its_own_is_found(made, tmp_path):
    prefix = tmp_path / "q"
    sh(made["one"], "install", "--prefix", prefix)
    place = prefix / "generations/1/root/usr/bin/python3.11"
    try:
        os.setxattr(place, "security.capability", bytes.fromhex("0100000200200000000000000000000000000000"))
    except OSError as problem:
        pytest.skip(f"no capability can be given to a file here: {problem}")
    found = sh(prefix / "pih", "status", "--check", check=False)
    assert (found.returncode, "usr/bin/python3.11" in found.stderr) == (8, True), found.stderr


def test_modes_are_those_of_an_image_wherever_it_is_installed(tmp_path):
    """Below a folder whose group is inherited; of weights that only their owner may read."""
    weights = tmp_path / "packed.safetensors"
    weights.write_bytes(b"packed" * 100)
    weights.chmod(0o600)
    above = tmp_path / "above"
    above.mkdir()
    above.chmod(0o2775)
    file = carried(tmp_path, "apart", delivery="separate", weights=b"")
    sh(file, "install", "--prefix", above / "pih", "--weights", weights)
    root = above / "pih/generations/1"
    modes = {path.lstat().st_mode & 0o7777 for path in [root, *root.rglob("*")] if not path.is_symlink()}
    assert modes == {0o755, 0o644}
    sh(above / "pih/pih", "status", "--check")


def test_who_looks_at_a_generation_does_not_run_it(made, tmp_path):
    prefix = tmp_path / "q"
    sh(made["one"], "install", "--prefix", prefix)
    lock = prefix / "generations/1/root/pih/lock.json"
    with subprocess.Popen(["tail", "-f", lock], stdout=subprocess.DEVNULL) as reader:
        try:
            until(lambda: lock.resolve() in [path.resolve() for path in Path(f"/proc/{reader.pid}/fd").iterdir()])
            assert '"running": []' in sh(prefix / "pih", "status", "--json").stdout
            sh(prefix / "pih", "uninstall")
        finally:
            reader.send_signal(signal.SIGTERM)
    assert not prefix.exists()


def test_what_runs_from_a_generation_is_told_by_its_program(tmp_path):
    prefix = tmp_path / "q"
    sh(carried(tmp_path, "one", extra=[SHELL]), "install", "--prefix", prefix)
    program = prefix / "generations/1/root" / SHELL.path
    with subprocess.Popen(["another name"], executable=program, stdin=subprocess.PIPE) as shell:
        assert f'"running": [{shell.pid}]' in sh(prefix / "pih", "status", "--json").stdout
        run = sh(prefix / "pih", "uninstall", check=False)
        assert (run.returncode, f"runs: {shell.pid}" in run.stderr) == (9, True)
        shell.stdin.close()
    sh(prefix / "pih", "uninstall")


@pytest.mark.parametrize("shell", ["dash", "busybox ash", "bash --posix"])
def test_an_ordinary_user_sees_what_another_runs(tmp_path, shell):
    if os.getuid() != 0:
        pytest.skip("only root can become another user")
    prefix = tmp_path / "q"
    sh(carried(tmp_path, "one", extra=[SHELL]), "install", "--prefix", prefix)
    open_to_all(tmp_path)
    program = prefix / "generations/1/root" / SHELL.path
    user = [*USER, *shell.split()]
    for name, seen in ((str(program), True), ("vim", False)):
        with subprocess.Popen([name, "-c", "read x", str(program)], executable=program, stdin=subprocess.PIPE) as run:
            said = sh(prefix / "pih", "status", "--json", shell=user).stdout
            assert (f'"running": [{run.pid}]' in said) is seen, said
            run.stdin.close()


class TestUnits:
    def installed(self, file, tmp_path, *options, environment=None, folder=None):
        return sh(
            file, "install", "--prefix", tmp_path / "pih", "--systemd", *options,
            environment=environment, folder=folder, check=False,
        )  # fmt: skip

    def test_a_folder_for_it_that_cannot_be_is_told_before_anything_is_unpacked(self, made, tmp_path):
        run = self.installed(made["one"], tmp_path, "--unit-dir", "/proc/x")
        assert (run.returncode, "/proc/x" in run.stderr, "unpack" in run.stderr) == (9, True, False)
        assert "to fix" in run.stderr
        assert not (tmp_path / "pih").exists()

    def test_what_fails_after_the_install_says_that_it_is_installed(self, made, tmp_path):
        tools = tmp_path / "bin"
        tools.mkdir()
        (tools / "mv").write_text(
            f'#!/bin/sh\ncase "$*" in *.service) exit 1 ;; esac\nexec {shutil.which("mv")} "$@"\n'
        )
        (tools / "mv").chmod(0o755)
        path = {"PATH": f"{tools}:{os.environ['PATH']}"}
        run = self.installed(made["one"], tmp_path, "--unit-dir", tmp_path / "units", environment=path)
        assert (run.returncode, "is installed in" in run.stderr, "to fix" in run.stderr) == (9, True, True)
        assert sh(tmp_path / "pih/pih", "start", "--no-sandbox").stdout == "worker of one\n"
        assert "nothing to do" in self.installed(made["one"], tmp_path, "--unit-dir", tmp_path / "units").stderr
        assert [path.name for path in (tmp_path / "units").iterdir()] == ["pih-tiny.service"]

    def test_of_a_user_without_a_home(self, made, tmp_path):
        user = USER if os.getuid() == 0 else []
        open_to_all(tmp_path)
        open_to_all(made["one"].parent)
        own = tmp_path / "own"
        own.mkdir()
        own.chmod(0o777)
        command = [*user, "env", "-u", "HOME", "-u", "XDG_CONFIG_HOME", "sh", made["one"], "install"]
        run = subprocess.run(
            [*command, "--prefix", own / "pih", "--systemd"], capture_output=True, text=True, check=False
        )
        assert (run.returncode, "HOME is not set" in run.stderr, "unpack" in run.stderr) == (2, True, False), run.stderr
        assert not list(own.iterdir())

    def test_a_relative_folder_is_found_again(self, made, tmp_path):
        self.installed(made["one"], tmp_path, "--unit-dir", "units", folder=tmp_path)
        assert (tmp_path / "units/pih-tiny.service").exists()
        sh(tmp_path / "pih/pih", "uninstall", folder="/")
        assert not list((tmp_path / "units").iterdir())

    def test_another_place_does_not_forget_the_first(self, made, tmp_path):
        for name in ("a", "b", "a"):
            self.installed(made["one"], tmp_path, "--unit-dir", tmp_path / name)
        sh(tmp_path / "pih/pih", "uninstall")
        assert not list(tmp_path.glob("[ab]/*"))

    @pytest.mark.parametrize("what", ["file", "folder", "link"])
    def test_one_of_somebody_else_stays(self, made, tmp_path, what):
        put(tmp_path / "units/pih-tiny.service", what)
        before = tree(tmp_path)
        run = self.installed(made["one"], tmp_path, "--unit-dir", tmp_path / "units")
        assert (run.returncode, "not of" in run.stderr, "unpack" in run.stderr) == (2, True, False)
        assert tree(tmp_path) == before

    def test_one_that_became_somebody_elses_stays_at_the_end(self, made, tmp_path):
        self.installed(made["one"], tmp_path, "--unit-dir", tmp_path / "units")
        (tmp_path / "units/pih-tiny.service").write_text("precious")
        sh(tmp_path / "pih/pih", "uninstall")
        assert (tmp_path / "units/pih-tiny.service").read_text() == "precious"

    def test_a_refused_install_makes_no_folder_for_it(self, tmp_path):
        file = carried(tmp_path / "made", "one", permissions={"devices": ["/dev/acme*"]})
        run = self.installed(file, tmp_path, "--unit-dir", tmp_path / "deep/units")
        assert run.returncode == (9 if os.getuid() == 0 else 0), run.stderr
        assert (tmp_path / "deep").exists() == (run.returncode == 0)
