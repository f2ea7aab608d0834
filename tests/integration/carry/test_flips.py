"""A wrong bit in the lines that look for wrong bits: nothing else can find it. Every bit is tried, in three shells."""

import os
import shutil
import subprocess

import pytest

from pih.carry import header

TITLE = "smollm2-cpu for x86-64-v3, made by pih 0.1.0: sh FILE help"
# What stands behind the check: says that it was run, wherever a wrong bit has the shell go on. A line that closes what
# may still be open there, and then the same again.
BEHIND = "".join(f"{closing}\n: >ran\n" for closing in ("", ")", "'", '"', "`"))
# What really stands there, with its quotes.
SCRIPT = ": >ran\nNAME='tiny' VERSION=1 IMAGE=2\n" + header.installer()
SLICES = 4
EACH = """
cd "$1"
for file in ../files/*; do
    code=0
    %s "$file" version >/dev/null 2>../said || code=$?
    [ "$code" -ne 0 ] || echo "$file accepted"
    [ -s ../said ] || echo "$file silent"
    for left in * .[!.]*; do
        [ ! -e "$left" ] || { echo "$file left $left" && rm -rf "$left"; }
    done
done
"""


def tools(folder, shell):
    """A host that has nothing but busybox, for its shell; else this one. Returns its PATH."""
    if not shutil.which(shell.split()[0]):
        pytest.skip(f"{shell} is not installed")
    if shell != "busybox ash":
        return os.environ["PATH"]
    busybox = shutil.which("busybox")
    folder.mkdir()
    for name in ("busybox", "head", "sed", "sha256sum", "rm"):
        (folder / name).symlink_to(busybox)
    return str(folder)


def troubles(folder, shell, files):
    """What a shell does with these scripts, by name: accepted, silent, or what they leave in the current folder."""
    (folder / "files").mkdir()
    (folder / "here").mkdir()
    for name, text in files.items():
        (folder / "files" / name).write_bytes(text)
    command = [*shell.split(), "-c", EACH % shell, "each", folder / "here"]
    environment = {**os.environ, "PATH": tools(folder / "tools", shell)}
    run = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, env=environment, check=True)
    assert run.stderr == ""
    return run.stdout.splitlines()


@pytest.mark.parametrize("number", range(SLICES))
@pytest.mark.parametrize(
    ("shell", "behind"),
    [("dash", BEHIND), ("dash", SCRIPT), ("busybox ash", BEHIND), ("bash --posix", SCRIPT)],
    ids=["dash", "dash, script", "busybox", "bash, script"],
)
def test_every_wrong_bit_in_the_lines_of_the_check(tmp_path, shell, behind, number):
    """Ends with a message and a code that is not 0, runs nothing behind the check, and leaves no file."""
    good = header.checked(TITLE, behind)
    end = good.index(b"#REST\n") + len("#REST\n")
    wrong = {
        f"{at}.{bit}": good[:at] + bytes([good[at] ^ 1 << bit]) + good[at + 1 :]
        for at in range(number, end, SLICES)
        for bit in range(8)
    }
    assert troubles(tmp_path, shell, wrong) == []


@pytest.mark.parametrize("shell", ["dash", "busybox ash", "bash --posix"])
def test_without_a_wrong_bit_they_go_on(tmp_path, shell):
    """So that the test above can fail."""
    files = {"behind": header.checked(TITLE, BEHIND), "good": header.checked(TITLE, "exit 0\n")}
    assert troubles(tmp_path, shell, files) == [
        "../files/behind left ran",
        "../files/good accepted",
        "../files/good silent",
    ]
