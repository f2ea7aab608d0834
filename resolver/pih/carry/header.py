"""The script at the head of a carried file: a check of itself, constants of the bundle, and the text of `shell/`.

A shell reads line by line. It comes as far as check.sh, which compares the digest and evaluates what follows only if it
is right. In check.sh and before it is no quote, so that one wrong bit can at most open one, and its last lines are a
syntax error inside each kind of quote and outside: whatever the bit, nothing behind them is parsed.

Padded to whole blocks, so that the payload begins where `dd` can skip to. The third line is the digest of all of it,
with what follows the `=` in that line left out.
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
    given = "".join(f"{name}={shlex.quote(str(value))}\n" for name, value in constants.items())
    lines = ["#!/bin/sh", f"# {title}", f"SELF={'0' * 64}", f"HEADER_BLOCKS={SIZE // BLOCK}"]
    text = "\n".join([*lines, _CHECK.read_text("ascii") + given + installer()]).encode("ascii")
    if len(text) >= SIZE:
        raise BuildError(f"the header needs {len(text)} bytes, and has {SIZE}", fix="give --split a larger size")
    padded = text.ljust(SIZE, b"\n")
    return _SELF.sub(rb"\1=" + digest(padded).encode(), padded)


def digest(header: bytes) -> str:
    """What the third line is to say."""
    return hashlib.sha256(_SELF.sub(rb"\1=", header)).hexdigest()
