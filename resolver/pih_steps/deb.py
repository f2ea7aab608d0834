"""Debian packages, read in pure Python: `ar` of control.tar and data.tar.

A package comes from a mirror: its digest is checked before it is read, and it is read
as untrusted all the same. Sizes are bounded, every path stays below the root, nothing
but files and symbolic links comes out, and no script of it is ever run.
"""

from __future__ import annotations

import io
import lzma
import posixpath
import struct
import tarfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from pih_runtime.errors import BuildError

MAX_UNPACKED = 1 << 30
_MAGIC = b"!<arch>\n"
_HEADER = 60


@dataclass(frozen=True, slots=True)
class Member:
    """A file (data) or a symbolic link (target); path relative to the root, mode 0o755 or 0o644."""

    path: str
    mode: int
    data: bytes
    target: str


@dataclass(frozen=True, slots=True)
class Package:
    """control: the fields of the control file's one paragraph, in its order."""

    control: dict[str, str]
    members: tuple[Member, ...]


def read(path: Path) -> Package:
    """Read a .deb; raises BuildError, naming the file, for anything that is not one."""
    try:
        parts = _ar(path.read_bytes())
        if not parts.get("debian-binary", b"").startswith(b"2."):
            raise ValueError("no debian-binary member of version 2")
        control = [member for member in _members(_tarball(parts, "control.tar")) if member.path == "control"]
        if not control:
            raise ValueError("no control file")
        return Package(
            control=_paragraph(control[0].data.decode("utf-8")),
            members=tuple(_members(_tarball(parts, "data.tar"))),
        )
    except OSError as problem:
        raise BuildError(f"cannot read the package: {problem.strerror}", where=str(path)) from problem
    except (ValueError, EOFError, OverflowError, struct.error, lzma.LZMAError, zlib.error, tarfile.TarError) as problem:
        raise BuildError(
            f"not a Debian package that can be used: {problem}", where=str(path), fix="delete it and fetch it again"
        ) from problem


def _ar(raw: bytes) -> dict[str, bytes]:
    if not raw.startswith(_MAGIC):
        raise ValueError("no ar archive")
    parts: dict[str, bytes] = {}
    position = len(_MAGIC)
    while position < len(raw):
        header = raw[position : position + _HEADER]
        if len(header) < _HEADER or header[58:] != b"`\n":
            raise ValueError(f"bad ar header at byte {position}")
        name = header[:16].decode("ascii").rstrip().rstrip("/")
        digits = header[48:58].rstrip()
        if not digits.isdigit():
            raise ValueError(f"bad size of ar member {name!r}")
        start = position + _HEADER
        end = start + int(digits)
        if end > len(raw):
            raise ValueError(f"ar member {name!r} ends past the file")
        if name in parts:
            raise ValueError(f"two ar members {name!r}")
        parts[name] = raw[start:end]
        position = end + end % 2
    return parts


def _tarball(parts: dict[str, bytes], name: str) -> bytes:
    if f"{name}.xz" in parts:
        # A bound on memory too: a hostile header may ask for a 4 GiB dictionary.
        xz = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=1 << 28)
        data = xz.decompress(parts[f"{name}.xz"], MAX_UNPACKED + 1)
        whole = xz.eof
    elif f"{name}.gz" in parts:
        gz = zlib.decompressobj(wbits=31)
        data = gz.decompress(parts[f"{name}.gz"], MAX_UNPACKED + 1)
        whole = gz.eof
    elif name in parts:
        data, whole = parts[name], True
    else:
        raise ValueError(f"no {name}, {name}.xz or {name}.gz")
    if len(data) > MAX_UNPACKED:
        raise ValueError(f"{name} unpacks to more than {MAX_UNPACKED} bytes")
    if not whole:
        raise ValueError(f"{name} is cut short")
    return data


def _members(tarball: bytes) -> Iterator[Member]:
    files: dict[str, Member] = {}
    with tarfile.open(fileobj=io.BytesIO(tarball), mode="r:") as archive:
        for info in archive:
            path = _safe(info.name)
            if info.isdir():
                continue
            if path == ".":
                raise ValueError("the root is not a folder")
            if info.issym():
                yield Member(path, 0o777, b"", _target(path, info.linkname))
                continue
            if info.isreg():
                files[path] = Member(path, 0o755 if info.mode & 0o111 else 0o644, _content(archive, info), "")
            elif info.islnk() and _safe(info.linkname) in files:
                files[path] = replace(files[_safe(info.linkname)], path=path)
            elif info.islnk():
                raise ValueError(f"{path} is a hard link to {info.linkname}, which does not come before it")
            else:
                raise ValueError(f"{path} is neither file, folder nor link")
            yield files[path]


def _content(archive: tarfile.TarFile, info: tarfile.TarInfo) -> bytes:
    stream = archive.extractfile(info)
    data = stream.read() if stream else b""
    if len(data) != info.size:
        raise ValueError(f"{info.name} is cut short")
    return data


def _safe(name: str) -> str:
    """The path below the root, without './'; refuses one that leaves it."""
    path = posixpath.normpath(name)
    if not name or "\0" in name or path.startswith(("/", "../")) or path == "..":
        raise ValueError(f"path {name!r} leaves the root")
    return path


def _target(path: str, target: str) -> str:
    if not target.startswith("/"):
        _safe(posixpath.join(posixpath.dirname(path), target))
    elif ".." in target.split("/"):
        raise ValueError(f"link {path} to {target!r} leaves the root")
    return target


def _paragraph(text: str) -> dict[str, str]:
    fields: dict[str, str] = {}
    key = ""
    for line in text.splitlines():
        if line.startswith((" ", "\t")) and key:
            fields[key] += "\n" + line
        elif line.strip():
            key, colon, value = line.partition(":")
            if not colon:
                raise ValueError(f"bad control line {line!r}")
            fields[key] = value.strip()
    for key in ("Package", "Version", "Architecture"):
        if key not in fields:
            raise ValueError(f"the control file has no {key}")
    return fields
