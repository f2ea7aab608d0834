"""What stays of a command that is told to end."""

import os
import signal
import subprocess
import sys
import tarfile

import pytest

from tests.support.program import ROOT

# whoever runs the tests in the background of a shell has them ignore interrupts, and their children too
HEARING = ("env", "--default-signal=INT")


VERIFY = """
import runpy, shutil, signal, sys
number = int(sys.argv.pop(1))
def half(content, writer, *_):
    writer.write(content.read(1 << 20))
    print(writer.name, flush=True)
    signal.raise_signal(number)
    raise AssertionError("it went on")
shutil.copyfileobj = half
runpy.run_module("pih", run_name="__main__")
"""


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_nothing_is_left_of_an_archive_and_nothing_is_said(tmp_path, number, code):
    """The signal comes while a blob is copied."""
    (tmp_path / "temporary").mkdir()
    entry = tarfile.TarInfo(f"blobs/sha256/{'0' * 64}")
    entry.size = 2 << 20
    (tmp_path / "x.tar").write_bytes(entry.tobuf() + bytes((2 << 20) + 10240))
    run = subprocess.run(
        [*HEARING, sys.executable, "-c", VERIFY, str(int(number)), "verify", str(tmp_path / "x.tar")],
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(tmp_path / "temporary")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.stdout.startswith(str(tmp_path / "temporary/pih-"))
    assert (run.returncode, run.stderr.strip()) == (code, "")
    assert list((tmp_path / "temporary").iterdir()) == []


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
