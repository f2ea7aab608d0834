"""The script at the head of a carried file: the same text for all, constants that a shell reads as they were meant."""

import hashlib
import shutil
import subprocess

import pytest

from pih.carry import header
from pih_runtime.errors import BuildError

SHELLS = [["sh", "-n"], ["dash", "-n"], ["busybox", "ash", "-n"], ["bash", "--posix", "-n"]]


def test_its_third_line_is_the_digest_of_the_rest():
    text = header.render("a title", {"NAME": "tiny"})
    lines = text.split(b"\n")
    assert len(text) == header.SIZE
    assert lines[2].replace(b"\\", b"") == b"SELF=" + header.digest(text).encode()
    assert hashlib.sha256(b"\n".join([*lines[:2], b"SELF=", *lines[3:]])).hexdigest() == header.digest(text)


def test_constants_are_data():
    value = 'it\'s $(touch /tmp/no) `x` "y"\nz'
    text = header.render("t", {"VALUE": value}).decode()
    given = text[text.index("#REST\n") : text.index("set +f")]
    run = subprocess.run(["sh", "-c", given + 'printf %s "$VALUE"'], capture_output=True, text=True, check=True)
    assert run.stdout == value


def test_too_many_constants():
    with pytest.raises(BuildError, match="131072"):
        header.render("t", {"VALUE": "x" * header.SIZE})


@pytest.mark.parametrize("shell", SHELLS, ids=" ".join)
def test_shells_read_it(shell, tmp_path):
    if not shutil.which(shell[0]):
        pytest.skip(f"{shell[0]} is not installed")
    (tmp_path / "x.sh").write_text(header.installer())
    run = subprocess.run([*shell, tmp_path / "x.sh"], capture_output=True, text=True, check=False)
    assert (run.returncode, run.stderr) == (0, "")


@pytest.mark.parametrize("shell", SHELLS, ids=" ".join)
def test_a_shell_that_merely_reads_it_comes_to_no_good_end(shell, tmp_path):
    """One wrong bit makes a shell do so: `set -n`."""
    if not shutil.which(shell[0]):
        pytest.skip(f"{shell[0]} is not installed")
    (tmp_path / "x.pih").write_bytes(header.render("t", {"VALUE": "x"}))
    assert subprocess.run([*shell, tmp_path / "x.pih"], capture_output=True, check=False).returncode != 0


def test_shellcheck(tmp_path):
    if not shutil.which("shellcheck"):
        pytest.skip("shellcheck is not installed")
    constants = "NAME VERSION IMAGE LOCK ARCH ISA CPU_FLAGS DELIVERY WEIGHTS_PATH DIGESTS_PATH WEIGHTS_NAMED UNPACKED"
    constants += " ENTRY LOADER PYTHON LIBRARIES ENVIRONMENT VARIABLES"
    constants += " DEVICES PATHS MAY_LISTEN PAYLOAD_SIZE PART_COUNT PARTS FRAME MEMBERS"
    script = tmp_path / "x.sh"
    given = "".join(f"{name}='x y'\n" for name in constants.split())
    script.write_text("#!/bin/sh\nset -efu\nHEADER_BLOCKS=1\n" + given + header.installer())
    # what it is merely informed of is meant so: lists of plain words are split, awk's variables are no shell's
    command = ["shellcheck", "--shell=sh", "--severity=warning", script]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.stdout == ""
