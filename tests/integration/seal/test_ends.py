"""What stays of a command that is told to end."""

import os
import signal
import subprocess
import sys
import tarfile
import time

import pytest

from tests.support.program import ROOT

# whoever runs the tests in the background of a shell has them ignore interrupts, and their children too
HEARING = ("env", "--default-signal=INT")


@pytest.fixture
def started(tmp_path):
    """`pih verify` of an archive with a large hole, which takes long to copy."""
    (tmp_path / "temporary").mkdir()
    entry = tarfile.TarInfo(f"blobs/sha256/{'0' * 64}")
    entry.size = 2 << 30
    with (tmp_path / "x.tar").open("wb") as file:
        file.write(entry.tobuf())
        file.truncate((2 << 30) + 10240)
    process = subprocess.Popen(
        [*HEARING, sys.executable, "-I", "-m", "pih", "verify", str(tmp_path / "x.tar")],
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(tmp_path / "temporary")},
        stderr=subprocess.PIPE,
        text=True,
    )
    yield process, tmp_path / "temporary"
    process.kill()
    process.wait()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_nothing_is_left_of_an_archive_and_nothing_is_said(started, number, code):
    process, folder = started
    deadline = time.monotonic() + 60
    while not list(folder.glob("pih-*/blobs/sha256/*")) and time.monotonic() < deadline:
        time.sleep(0.01)
    process.send_signal(number)
    said = process.communicate(timeout=60)[1]
    assert (process.returncode, said.strip()) == (code, "")
    assert list(folder.iterdir()) == []


def test_an_interrupt_among_the_imports_has_no_traceback(tmp_path):
    (tmp_path / "sitecustomize.py").write_text(
        "import signal, sys\n"
        "class Finder:\n"
        "    def find_spec(self, name, *_):\n"
        "        if name == 'pih.cli._errors': signal.raise_signal(signal.SIGINT)\n"
        "sys.meta_path.insert(0, Finder())\n"
    )
    run = subprocess.run(
        [*HEARING, sys.executable, "-c", "import runpy, sitecustomize; runpy.run_module('pih', run_name='__main__')"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (run.returncode, run.stderr) == (130, "")
