"""The script at the head of a carried file: a check of itself, constants of the bundle, and the text of `shell/`.

A shell reads line by line. It comes as far as check.sh, which compares the digest and evaluates what follows only if it
is right; whichever bit of check.sh itself is wrong, nothing behind it is run.

Padded to whole blocks, so that the payload begins where `dd` can skip to. The third line is the digest of all of it,
with what follows the `=` in that line left out; why each digit has a backslash, check.sh says.
"""

from __future__ import annotations

import hashlib
import re
import shlex
from collections.abc import Mapping
from pathlib import Path

from pih_runtime.errors import BuildError

SIZE = 1 << 17  # bytes
BLOCK = 512
SIGNATURES = 16  # of one statement that a host tries, as shell/40-signature.sh has it
_CHECK = Path(__file__).with_name("check.sh")
_SHELL = Path(__file__).with_name("shell")
_SELF = re.compile(rb"\A(.*\n.*\nSELF)=.*")


def installer() -> str:
    """The part that is the same in every file of this version of pih."""
    return "\n".join(path.read_text("ascii") for path in sorted(_SHELL.glob("*.sh")))


def render(title: str, constants: Mapping[str, str | int]) -> bytes:
    """The script, SIZE bytes. title: one line for whoever looks into the file."""
    lines = {"HEADER_BLOCKS": SIZE // BLOCK, **constants}
    given = "".join(f"{name}={shlex.quote(str(value))}\n" for name, value in lines.items())
    rest = given + installer()
    size = len(checked(title, rest))
    if size > SIZE:
        raise BuildError(f"the header needs {size} bytes, and has {SIZE}", fix="give --split a larger size")
    return checked(title, rest + "\n" * (SIZE - size))


def checked(title: str, rest: str) -> bytes:
    """A script that runs the rest only if all of it is as it is now."""
    check = [line for line in _CHECK.read_text("ascii").splitlines() if not line.startswith("#")]
    lines = ["#!/bin/sh", f"# {title}", "SELF=" + "\\0" * 64, *check, "#REST", rest]
    text = "\n".join(lines).encode("ascii")
    return _SELF.sub(lambda match: match[1] + b"=" + "".join(f"\\{digit}" for digit in digest(text)).encode(), text)


def digest(header: bytes) -> str:
    """What the third line is to say."""
    return hashlib.sha256(_SELF.sub(rb"\1=", header)).hexdigest()
