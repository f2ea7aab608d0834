"""Running a package manager's client: its words, its progress, its end."""

import errno
import os
import shlex
import sys
from pathlib import Path

import pytest

from pih.build import command
from pih_runtime.errors import FetchError
from tests.support.disk import on_small_disk
from tests.support.program import ROOT


def run(folder, script, advanced=lambda _: None):
    return command.run(
        "client", [sys.executable, "-c", script], folder, os.environ, missing="install it", advanced=advanced
    )


def test_what_it_prints(tmp_path):
    assert run(tmp_path, "import sys; print('out'); print('err', file=sys.stderr)") == "out\n"


def test_its_last_lines_where_it_fails(tmp_path):
    script = "import sys; [print('line', i, file=sys.stderr) for i in range(99)]; print(); sys.exit('no such package')"
    with pytest.raises(FetchError) as failure:
        run(tmp_path, script)
    assert str(failure.value).startswith("client failed:")
    assert "no such package" in str(failure.value)
    assert "line 98" in str(failure.value)
    assert "line 1\n" not in str(failure.value)


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("print('no such package'); sys.exit(1)", "no such package"),
        ("sys.exit(3)", "exit code 3, and not a word"),
        ("os.kill(os.getpid(), 9)", "exit code -9, and not a word"),
    ],
)
def test_a_failure_is_never_without_words(tmp_path, script, words):
    with pytest.raises(FetchError, match=words):
        run(tmp_path, f"import os, sys; {script}")


@pytest.mark.parametrize(
    "said",
    [
        "OSError: [Errno 28] No space left on device",
        "npm error code ENOSPC",
        "E: Write error - write (28: No space left on device)",
        "Disk quota exceeded (os error 122)",
    ],
)
def test_a_full_disk_is_no_fault_of_the_registries(tmp_path, said):
    with pytest.raises(OSError, match="client met a full disk") as failure:
        run(tmp_path, f"import sys; print({said!r}, file=sys.stderr); sys.exit('and so it ends')")
    assert failure.value.errno == errno.ENOSPC
    assert failure.value.strerror == f"client met a full disk\n    {said}"


def test_a_disk_is_full_by_what_is_free_whatever_the_client_says(tmp_path):
    source = (
        "import os, pathlib, sys; from pih.build import command; folder = pathlib.Path(sys.argv[1])\n"
        "command.run('client', ['sh', '-c', 'cat /dev/zero 2>/dev/null >fill'], folder, os.environ, missing='',"
        " advanced=lambda _: None)"
    )
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'resolver'}:{ROOT / 'runtime'}"}
    done = on_small_disk("1m", f"{sys.executable} -c {shlex.quote(source)} $DISK", tmp_path, environment)
    assert "OSError: [Errno 28] client met a full disk: " in done.stderr


def test_a_client_that_is_not_installed(tmp_path):
    with pytest.raises(FetchError, match="client is not installed") as failure:
        command.run("client", [str(tmp_path / "x")], tmp_path, {}, missing="install it", advanced=lambda _: None)
    assert failure.value.fix == "install it"


def test_its_temporary_files_count_as_progress(tmp_path):
    """It goes on until they were seen."""
    seen = tmp_path / "seen"
    script = (
        "import tempfile, time, os; f = tempfile.NamedTemporaryFile(); f.write(bytes(5000)); f.flush()\n"
        "assert f.name.startswith(os.getcwd())\n"
        "for _ in range(6000):\n if os.path.exists('seen'): break\n time.sleep(0.01)\n"
        "else: raise SystemExit('nobody saw them')"
    )
    run(tmp_path, script, lambda size: seen.touch() if size >= 5000 else None)
    assert seen.exists()


def test_it_ends_when_the_user_gives_up(tmp_path):
    written = tmp_path / "pid"

    def give_up(_):
        if written.exists() and written.read_text():
            raise KeyboardInterrupt

    script = f"import os, time; open({str(written)!r}, 'w').write(str(os.getpid())); time.sleep(600)"
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, script, give_up)
    assert not Path("/proc", written.read_text()).exists()


@pytest.mark.parametrize("names", [[], ["a.whl", "b.whl"]])
def test_a_client_that_leaves_something_else(tmp_path, names):
    for name in names:
        (tmp_path / name).touch()
    with pytest.raises(FetchError, match=f"left {len(names)} files"):
        command.only_file(tmp_path, ".whl")
