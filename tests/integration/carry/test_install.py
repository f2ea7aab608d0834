"""A carried bundle is installed, upgraded, rolled back, started and removed with a shell and nothing else."""

import fcntl
import json
import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from pih_runtime.errors import SealError
from tests.support.carried import SHELL, carried, sh


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("made")
    return {text: carried(folder, text) for text in ("one", "two", "three", "four")}


@pytest.fixture
def prefix(tmp_path):
    return tmp_path / "opt" / "pih"


def status(prefix):
    return json.loads(sh(prefix / "pih", "status", "--json").stdout)["generations"]


def says(prefix):
    return sh(prefix / "pih", "start", "--no-sandbox").stdout.strip()


def edited(path, old, new):
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def leftovers(prefix):
    return [path for path in prefix.rglob("*") if path.name.endswith((".partial", ".removed", ".switch", ".new"))]


def test_install_upgrade_rollback(made, prefix, shell):
    sh(made["one"], "install", "--prefix", prefix, shell=shell)
    assert says(prefix) == "worker of one"
    assert (prefix / "current").readlink().as_posix() == "generations/1"
    sh(made["two"], "upgrade", "--prefix", prefix, shell=shell)
    assert says(prefix) == "worker of two"
    assert [entry["current"] for entry in status(prefix)] == [False, True]
    sh(prefix / "pih", "rollback", shell=shell)
    assert says(prefix) == "worker of one"
    sh(prefix / "pih", "rollback", "2", shell=shell)
    assert says(prefix) == "worker of two"
    sh(prefix / "pih", "status", "--check", shell=shell)
    sh(prefix / "pih", "uninstall", shell=shell)
    assert not prefix.exists()


def append(path):
    path.write_bytes(path.read_bytes() + b"x")


@pytest.mark.parametrize(
    ("name", "spoil"),
    [
        ("pih", append),
        ("pih", Path.unlink),
        ("about", append),
        ("files", Path.unlink),
        ("root/usr", shutil.rmtree),
        ("root/pih/lock.json", append),
    ],
)
def test_no_rollback_to_a_damaged_generation(made, prefix, name, spoil):
    sh(made["one"], "install", "--prefix", prefix)
    sh(made["two"], "upgrade", "--prefix", prefix)
    spoil(prefix / "generations/1" / name)
    run = sh(prefix / "pih", "rollback", check=False)
    assert (run.returncode, "generation 1 is not what was installed: generations/1/" in run.stderr) == (8, True)
    assert says(prefix) == "worker of two"


def test_status_names_a_generation_whose_script_is_damaged(made, prefix):
    sh(made["one"], "install", "--prefix", prefix)
    append(prefix / "generations/1/pih")
    run = sh(made["one"], "status", "--prefix", prefix, check=False)
    assert (run.returncode, "damaged" in run.stdout, "generations/1/pih" in run.stderr) == (8, True, True)
    run = sh(made["one"], "status", "--prefix", prefix, "--json", check=False)
    assert (run.returncode, json.loads(run.stdout)["generations"][0]["whole"]) == (8, "pih")


def test_a_name_with_control_characters_is_told_in_plain_letters(made, prefix, shell):
    sh(made["one"], "install", "--prefix", prefix)
    for name in ("a\tb", "a\x1b[1mb", 'a"b', "a\\b"):
        foreign = prefix / "generations/1/root/pih" / name
        foreign.touch()
        run = sh(prefix / "pih", "status", "--check", "--json", shell=shell, check=False)
        assert json.loads(run.stdout)["generations"][0]["whole"].startswith("root/pih/a?")
        run = sh(prefix / "pih", "status", "--check", shell=shell, check=False)
        assert "\x1b" not in run.stdout + run.stderr
        foreign.unlink()


def test_the_way_back_from_a_damaged_script(made, prefix):
    sh(made["one"], "install", "--prefix", prefix)
    sh(made["two"], "upgrade", "--prefix", prefix)
    edited(prefix / "generations/2/pih", "verb_load()", "verb_lead()")
    run = sh(prefix / "pih", "rollback", check=False)
    assert (run.returncode, "generations/N/pih rollback N" in run.stderr) == (8, True), run.stderr
    sh(prefix / "generations/1/pih", "rollback", "1")
    assert says(prefix) == "worker of one"


def test_variables_that_a_plugin_declares_reach_the_worker_and_no_others(prefix, shell, tmp_path):
    file = carried(tmp_path / "own", "one", permissions={"environment": ["NPU_DEVICES", "NPU_LOG"]})
    sh(file, "install", "--prefix", prefix, shell=shell)
    for value in ("1,0", "a \"b\" $(touch no) 'c'", ""):
        environment = {"NPU_DEVICES": value, "NPU_DEBUG": "1"}
        said = sh(prefix / "pih", "start", "--no-sandbox", shell=shell, environment=environment).stdout
        assert said == "worker of one\n" + (f"device {value}, debug none\n" if value else "")


def test_a_file_that_would_have_the_host_direct_its_loader_is_not_made(tmp_path):
    with pytest.raises(SealError, match="asks for 'LD_PRELOAD'"):
        carried(tmp_path, "one", permissions={"environment": ["LD_PRELOAD"]})


def test_the_last_ones_stay(made, prefix):
    for text in ("one", "two", "three", "four"):
        sh(made[text], "install" if text == "one" else "upgrade", "--prefix", prefix, "--keep", "2")
    assert [entry["generation"] for entry in status(prefix)] == [3, 4]
    assert not leftovers(prefix)


def test_as_many_stay_as_are_asked_for_though_nothing_is_to_do(made, prefix):
    sh(made["one"], "install", "--prefix", prefix)
    sh(made["two"], "upgrade", "--prefix", prefix)
    sh(made["two"], "upgrade", "--prefix", prefix)
    assert len(status(prefix)) == 2
    sh(made["two"], "upgrade", "--prefix", prefix, "--keep", "1")
    assert [entry["generation"] for entry in status(prefix)] == [2]


def test_the_current_one_stays_though_it_is_old(made, prefix):
    sh(made["one"], "install", "--prefix", prefix)
    sh(made["two"], "upgrade", "--prefix", prefix)
    sh(prefix / "pih", "rollback")
    sh(made["three"], "upgrade", "--prefix", prefix, "--keep", "1")
    assert [entry["generation"] for entry in status(prefix)] == [3]


def test_the_file_is_not_needed_any_more(made, prefix, tmp_path):
    copy = shutil.copy(made["one"], tmp_path / "stick.pih")
    sh(copy, "install", "--prefix", prefix)
    (tmp_path / "stick.pih").unlink()
    assert says(prefix) == "worker of one"
    refused = sh(prefix / "pih", "verify", check=False)
    assert refused.returncode == 2
    assert "carries no payload" in refused.stderr


def test_another_file_starts_what_is_installed(made, prefix):
    sh(made["one"], "install", "--prefix", prefix)
    assert sh(made["two"], "start", "--prefix", prefix, "--no-sandbox").stdout.strip() == "worker of one"


def test_nothing_to_do(made, prefix):
    sh(made["one"], "install", "--prefix", prefix)
    for verb in ("install", "upgrade"):
        assert "nothing to do" in sh(made["one"], verb, "--prefix", prefix).stderr
    assert "nothing to do" in sh(prefix / "pih", "rollback", "1").stderr
    assert len(status(prefix)) == 1


def test_another_deployment_is_refused_unless_told(made, prefix, tmp_path):
    other = carried(tmp_path / "other", "other", name="other")
    sh(made["one"], "install", "--prefix", prefix)
    refused = sh(other, "upgrade", "--prefix", prefix, check=False)
    assert refused.returncode == 2
    assert "is of tiny, this file is other" in refused.stderr
    assert sh(other, "install", "--prefix", prefix, check=False).returncode == 2
    sh(other, "upgrade", "--prefix", prefix, "--other-deployment")
    assert says(prefix) == "worker of other"


def test_an_ordinary_user_in_a_prefix_of_their_own(made, tmp_path):
    if os.getuid() != 0:
        pytest.skip("only root can become another user; this run is an ordinary user's all along")
    folder = tmp_path / "user"
    folder.mkdir()
    os.chown(folder, 65534, 65534)
    for path in (tmp_path, *tmp_path.parents):
        if path.stat().st_mode & 0o055 != 0o055 and path.stat().st_uid == 0:
            path.chmod(path.stat().st_mode | 0o055)
    copy = shutil.copy(made["one"], folder / "one.pih")
    user = ("setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", "dash")
    sh(copy, "install", "--prefix", folder / "pih", shell=user)
    assert "worker of one" in sh(folder / "pih/pih", "start", "--no-sandbox", shell=user).stdout
    assert (folder / "pih/current/root/tmp").stat().st_mode & 0o002 == 0
    refused = sh(copy, "install", "--prefix", "/opt/pih-test-of-nobody", shell=user, check=False)
    assert refused.returncode == 9
    assert "cannot write" in refused.stderr


def test_a_signal_reaches_the_worker_and_status_shows_it(made, prefix, tmp_path):
    sh(carried(tmp_path, "one", extra=[SHELL]), "install", "--prefix", prefix)
    command = ["sh", prefix / "pih", "start", "--no-sandbox", "--listen", "127.0.0.1:9"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as worker:
        try:
            assert worker.stdout.readline() == "worker of one\n"
            assert worker.pid in status(prefix)[0]["running"]  # and what it has started
            assert "runs" in sh(prefix / "pih", "uninstall", check=False).stderr
            sh(made["two"], "upgrade", "--prefix", prefix, "--keep", "1")
            assert [entry["generation"] for entry in status(prefix)] == [1, 2]  # what runs is not taken away
        finally:
            worker.send_signal(signal.SIGTERM)
        assert worker.stdout.readline() == "stopped\n"
        assert worker.wait() == 0


def test_a_changed_file_is_found(made, prefix):
    sh(made["one"], "install", "--prefix", prefix)
    weights = prefix / "current/root/pih/weights/weights.safetensors"
    weights.write_bytes(b"Weights " * 1000)
    found = sh(prefix / "pih", "status", "--check", check=False)
    assert found.returncode == 8
    assert "pih/weights/weights.safetensors" in found.stderr
    sh(prefix / "pih", "status")


def test_a_file_that_was_put_there_is_found(made, prefix):
    sh(made["one"], "install", "--prefix", prefix)
    (prefix / "current/root/usr/lib/sitecustomize.py").write_text("print('hello')")
    found = sh(prefix / "pih", "status", "--check", check=False)
    assert found.returncode == 8
    assert "usr/lib/sitecustomize.py" in found.stderr


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda root: (root / "usr/lib64/ld-linux-x86-64.so.2").unlink(), "usr/lib64/ld-linux-x86-64.so.2"),
        (lambda root: (root / "usr/lib/new").symlink_to("/etc"), "usr/lib/new"),
        (
            lambda root: (
                (root / "usr/lib64/ld-linux-x86-64.so.2").unlink(),
                (root / "usr/lib64/ld-linux-x86-64.so.2").symlink_to("/tmp/evil"),
            ),
            "usr/lib64/ld-linux-x86-64.so.2 -> /tmp/evil",
        ),
        (lambda root: (root / "usr/bin/python3.11").unlink(), "usr/bin/python3.11"),
        (lambda root: (root / "usr/bin/python3.11").chmod(0o644), "usr/bin/python3.11"),
        (lambda root: (root / "usr/bin/python3.11").chmod(0o4755), "usr/bin/python3.11"),
        (lambda root: (root / "usr/bin/python3.11").chmod(0o777), "usr/bin/python3.11"),
        (lambda root: (root / "pih/lock.json").chmod(0o600), "pih/lock.json"),
        (lambda root: (root / "pih/lock.json").chmod(0o666), "pih/lock.json"),
        (lambda root: (root / "usr").chmod(0o777), "usr"),
        (lambda root: (root.parent / "pih").chmod(0o666), "pih"),
        (lambda root: root.chmod(0o777), "root"),
        (lambda root: (root / "usr/new").mkdir(), "usr/new"),
        (lambda root: os.mkfifo(root / "usr/pipe"), "usr/pipe"),
        (lambda root: (root.rename(root.parent / "away"), root.symlink_to("away")), "root"),
        (lambda root: (root.parent / "shape").unlink(), "shape"),
        (lambda root: (root.parent / "about").write_text(""), "about"),
        (lambda root: edited(root.parent / "about", "signed no", "signed yes"), "about"),
        (lambda root: edited(root.parent / "shape", "program ./usr/bin/python3.11\n", ""), "shape"),
        (lambda root: edited(root.parent / "files", "  usr/bin/pih-worker", "  usr/bin/pih-w0rker"), "files"),
        (lambda root: (root.parent / "pih").write_text("#!/bin/sh\necho hello\n"), "pih"),
    ],
)
def test_whatever_was_changed_is_found_and_installed_anew(made, prefix, change, words):
    sh(made["one"], "install", "--prefix", prefix)
    change(prefix / "generations/1/root")
    found = sh(made["one"], "status", "--check", "--prefix", prefix, check=False)
    assert (found.returncode, words in found.stderr) == (8, True), found.stderr
    assert "installs it anew" in found.stderr
    assert sh(made["one"], "status", "--check", "--json", "--prefix", prefix, check=False).returncode == 8
    again = sh(made["one"], "install", "--prefix", prefix)
    assert "nothing to do" not in again.stderr
    assert says(prefix) == "worker of one"
    sh(prefix / "pih", "status", "--check")
    assert [entry["generation"] for entry in status(prefix)] == [2]


def test_a_way_in_that_is_missing_is_made_again(made, prefix):
    sh(made["one"], "install", "--prefix", prefix)
    (prefix / "pih").unlink()
    sh(made["one"], "install", "--prefix", prefix)
    assert says(prefix) == "worker of one"


def test_one_change_at_a_time(made, prefix):
    sh(made["one"], "install", "--prefix", prefix)
    with (prefix / ".pih/lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        refused = sh(made["two"], "upgrade", "--prefix", prefix, check=False)
    assert refused.returncode == 9
    assert "another process is changing" in refused.stderr
    sh(made["two"], "upgrade", "--prefix", prefix)


def test_one_change_at_a_time_on_a_host_without_flock(made, prefix, tmp_path):
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in subprocess.run(["busybox", "--list"], capture_output=True, text=True, check=True).stdout.split():
        if name != "flock":
            (tools / name).symlink_to(shutil.which("busybox"))
    host = {"PATH": str(tools)}
    sh(made["one"], "install", "--prefix", prefix, environment=host)
    assert not (prefix / ".pih/changing").is_symlink()
    (prefix / ".pih/changing").symlink_to(str(os.getpid()))
    refused = sh(made["two"], "upgrade", "--prefix", prefix, environment=host, check=False)
    assert refused.returncode == 9
    assert "another process is changing" in refused.stderr
    with subprocess.Popen(["true"]) as gone:
        gone.wait()
    (prefix / ".pih/changing").unlink()
    (prefix / ".pih/changing").symlink_to(str(gone.pid))
    sh(made["two"], "upgrade", "--prefix", prefix, environment=host)
    assert says(prefix) == "worker of two"
    assert not list(prefix.glob(".pih/taken*"))


@pytest.mark.parametrize(
    ("target", "words"),
    [({"arch": "riscv64"}, "is for riscv64"), ({"isa": "x86-64-v9"}, "no wonder_flag")],
)
def test_another_processor_is_refused(tmp_path, prefix, target, words, monkeypatch):
    monkeypatch.setitem(__import__("pih.carry.image").carry.image.ISA_FLAGS, "x86-64-v9", frozenset({"wonder_flag"}))
    refused = sh(carried(tmp_path, "far", target=target), "install", "--prefix", prefix, check=False)
    assert refused.returncode == 9
    assert words in refused.stderr
    assert not leftovers(prefix)


def test_usage(made, prefix):
    for arguments, words in (
        (["install"], "needs --prefix"),
        (["frobnicate"], "no verb frobnicate"),
        (["verify", "--frob"], "no option --frob"),
        (["verify", "extra", "words"], "extra is one word too many"),
        (["rollback", "1", "2", "--prefix", prefix], "2 is one word too many"),
        (["install", "--prefix"], "needs a value"),
        (["upgrade", "--prefix", prefix], "nothing is installed"),
        (["rollback", "--prefix", prefix], "nothing is installed"),
        (["install", "--prefix", prefix, "--keep", "0"], "no number"),
        (["install", "--prefix", prefix, "--weights", made["one"]], "weights inside"),
        (["start", "--prefix", prefix, "--listen", "unix:/x"], "cannot listen"),
    ):
        run = sh(made["one"], *arguments, check=False)
        assert (run.returncode, words in run.stderr) == (2, True), run.stderr
    assert "Example" in sh(made["one"]).stdout


def test_a_prefix_that_no_worker_could_be_started_from_is_refused_and_a_relative_one_is_not(made, tmp_path):
    for name in ("a b", "a=b", "a%b", "a:b"):
        run = sh(made["one"], "install", "--prefix", tmp_path / name, check=False)
        assert (run.returncode, "letters, digits" in run.stderr) == (2, True), run.stderr
    run = subprocess.run(["sh", made["one"], "install", "--prefix", "here"], cwd=tmp_path, check=False)
    assert run.returncode == 0
    assert says(tmp_path / "here") == "worker of one"
