"""/usr/bin/pih-worker, shipped as this text: checks what the worker is made of before any of it is imported.

Until then nothing is used but what the interpreter has in itself. The library that makes digests fast is not trusted: a
child uses it, whose end is not ours, and where it is not content the interpreter's own slow code has the last word.
"""

# pathlib would have to be imported, and so trusted, before it is checked
# ruff: noqa: PTH100, PTH115, PTH118, PTH120, PTH123

import os
import sys
from _sha256 import sha256  # type: ignore[import-not-found] # part of the interpreter, and private
from _signal import alarm  # type: ignore[import-not-found] # the same

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, NoReturn

_SECONDS = 60
_CHECKED = ("/usr/", "/pih/lib/pih_runtime/")
_FIX = "load the image again, or build it again"


def check(root: str) -> None:
    """End with 8 and the name of the first file of /usr and of pih_runtime that is not what bundle.json says.

    All else below /pih is checked by the worker. root: of the image, '' for /.
    """
    place = f"{root}/pih/bundle.json"
    try:
        with open(place, encoding="utf-8") as reader:
            listed = _listed(reader.read())
    except (OSError, ValueError, IndexError) as problem:
        _refuse(place, f"cannot be read: {problem}")
    child = os.fork()
    if child == 0:
        try:
            alarm(_SECONDS)
            from _hashlib import openssl_sha256

            os._exit(1 if _damaged(root, listed, openssl_sha256) else 0)
        finally:
            os._exit(1)
    if os.waitpid(child, 0)[1] and (found := _damaged(root, listed, sha256)):
        _refuse(*found)


def _listed(text: str) -> "dict[str, str]":
    """What each file or link should be. The list has a line for each, which begins with its path."""
    found = {}
    for line in text.split("\n"):
        if line.startswith(tuple(f'{{"path": "{folder}' for folder in _CHECKED)):
            words = line.split('"')
            found[words[3]] = f"-> {words[9]}" if words[7] == "target" else words[9]
    return found


def _damaged(root: str, listed: "dict[str, str]", digest: "Callable[[bytes], Any]") -> "tuple[str, str] | None":
    """The first that is not what it should be, and what is wrong."""
    for path, want in listed.items():
        place = root + path
        try:
            if want.startswith("-> "):
                have = f"-> {os.readlink(place)}"
            else:
                with open(place, "rb") as reader:
                    have = f"sha256:{digest(reader.read()).hexdigest()}"
        except OSError as problem:
            return place, f"cannot be read: {problem.strerror}"
        if have != want:
            return place, f"is {have}, and bundle.json says {want}: one of the two is damaged"
    return None


def _refuse(where: str, what: str) -> "NoReturn":
    print(f"pih-worker: error: {where}: {what}\n  to fix: {_FIX}", file=sys.stderr, flush=True)
    sys.exit(8)


if __name__ == "__main__":
    top = os.path.abspath(os.path.join(os.path.dirname(__file__), "../..")).rstrip("/")
    check(top)
    sys.path.insert(0, f"{top}/pih/lib")
    from pih_runtime.worker import main

    sys.exit(main(sys.argv[1:]))
