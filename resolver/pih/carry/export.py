"""One file that installs a bundle: a script and, behind it, the image layout as an uncompressed archive.

The archive is what `podman load` takes. Its order is that of use: what says what the image is, then its layers, then
weights that were delivered apart. The same bundle gives the same file.
"""

from __future__ import annotations

import hashlib
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import attrs

from pih.build.progress import Listener, StepDone, StepFailed, StepStarted, silent
from pih.bundle import layout as layouts
from pih.bundle import run
from pih.bundle.layout import LAYER_GZIP, Layout
from pih.carry import apart, header
from pih.carry.image import DIGESTS_PATH, WEIGHTS_PATH, Described, Plain, describe
from pih.carry.parts import Part, Parts, writing
from pih.reading import json_of
from pih_runtime.errors import SealError, UsageError
from pih_steps import devices

_CHUNK = 1 << 20
_BLOCK = 512
LEAST = 1 << 20  # bytes of a part: smaller ones would be a list of names
_DSSE = {"payload", "payloadType", "signatures"}


@attrs.frozen
class Member:
    """A file of the archive. role: as the installer's script calls it. sha256: in hex. title: one word for people.

    plain: of a member that is, or holds, one file of the image: where in the member it lies.
    """

    role: str
    sha256: str
    size: int
    path: str
    source: Path
    title: str
    plain: Plain | None = None

    def line(self, offset: int) -> str:
        """As the script reads it; offset: of the member in the archive."""
        inner = f" {self.plain.offset} {self.plain.size} {self.plain.path}" if self.plain else ""
        return f"{self.role} {self.sha256} {offset} {self.size} {self.path} {self.title}{inner}"


@attrs.frozen
class Exported:
    """A carried file. files: all parts. header: digest of the script in the first one. image: the manifest's digest."""

    files: tuple[Path, ...]
    size: int
    header: str
    image: str
    name: str


def export(image: Layout, output: Path, *, weights: Path | None, split: int, listener: Listener = silent) -> Exported:
    """Write the file, in parts of at most `split` bytes (0: one file). weights: packed, where they are delivered apart.

    Raises SealError for an image whose bytes are not what it says, or that has what no bundle has, and for weights that
    its worker would refuse.
    """
    listener(StepStarted(output.name))
    began = time.monotonic()
    try:
        found = _export(image, output, weights=weights, split=split)
    except BaseException:
        listener(StepFailed(output.name))
        raise
    listener(StepDone(output.name, time.monotonic() - began, cached=False))
    return found


def _export(image: Layout, output: Path, *, weights: Path | None, split: int) -> Exported:
    found = describe(image)
    members = [*_small(image), *_layers(found), *_weights(found, weights)]
    limit = (split // _CHUNK * _CHUNK) if split else 1 << 62
    if limit < LEAST:
        raise UsageError("parts of less than 1 MiB", fix="give --split a size of 2MB or more, such as 4GB")
    with writing(output, header.SIZE, limit) as parts:
        frame, offsets = _archive(parts, members)
        sizes = parts.finish()
        lines = [member.line(offset) for member, offset in zip(members, offsets, strict=True)]
        unpacked = found.unpacked + sum(member.size for member in members if member.role == "weights")
        text = header.render(_title(found), _constants(found, unpacked, sizes, frame, lines))
        files = parts.publish(text)
    size = header.SIZE + sum(part.size for part in sizes)
    return Exported(tuple(files), size, header.digest(text), image.digest, _name(found))


def _archive(parts: Parts, members: list[Member]) -> tuple[str, list[int]]:
    """Write the members; the digest of what is around them, and where each begins. A damaged blob is a SealError."""
    frame = hashlib.sha256()
    at, offsets = 0, []

    def between(data: bytes) -> int:
        frame.update(data)
        parts.write(data)
        return len(data)

    for member in members:
        entry = tarfile.TarInfo(member.path)
        entry.size, entry.mode = member.size, 0o644
        at += between(entry.tobuf(tarfile.GNU_FORMAT, "ascii", "strict"))
        offsets.append(at)
        _copy(parts, member)
        at += member.size
        at += between(bytes(-member.size % _BLOCK))
    between(bytes(2 * _BLOCK))
    return frame.hexdigest(), offsets


def _copy(parts: Parts, member: Member) -> None:
    hasher, left = hashlib.sha256(), member.size
    with member.source.open("rb") as stream:
        while left and (chunk := stream.read(min(_CHUNK, left))):
            hasher.update(chunk)
            parts.write(chunk)
            left -= len(chunk)
        if left or stream.read(1) or hasher.hexdigest() != member.sha256:
            raise SealError("the file is not what its digest says", where=str(member.source), fix="build it again")


def _small(image: Layout) -> Iterator[Member]:
    """Files of the layout, then the image's manifest and configuration, then what is attached to the image."""
    for role, name in (("layout", "oci-layout"), ("index", "index.json"), ("docker", "manifest.json")):
        yield _file(role, name, image.path / name)
    yield _blob(image, "manifest", image.digest)
    yield _blob(image, "config", image.config_digest)
    seen = {image.digest, image.config_digest, *(layer.digest for layer in image.layers)}
    for digest in _attached(image):
        if digest not in seen:
            seen.add(digest)
            path = layouts.blob_path(image.path, digest)
            yield _blob(image, "envelope" if _is_envelope(path) else "attached", digest)


def _attached(image: Layout) -> Iterator[str]:
    """Digests of the artifacts that the layout's index lists beside the image, and of what they hold."""
    for artifact in image.attached:
        yield artifact.digest
        yield from layouts.blobs_of(image, artifact)


def _is_envelope(path: Path) -> bool:
    """A DSSE envelope: JSON with just these keys."""
    if path.stat().st_size > _CHUNK << 4:
        return False
    try:
        value = json_of(path.read_bytes())
    except ValueError:
        return False
    return isinstance(value, dict) and value.keys() == _DSSE


def _layers(found: Described) -> Iterator[Member]:
    for number, layer in enumerate(found.layout.layers):
        title, plain = found.titles[number], found.plain.get(layer.digest)
        if plain:
            yield attrs.evolve(_blob(found.layout, "file", layer.digest, title), plain=plain)
        elif layer.media_type == LAYER_GZIP:
            yield _blob(found.layout, "layer", layer.digest, title)
        else:
            raise SealError(
                "an uncompressed layer of several files",
                where=layer.digest,
                fix="compress it, or build the bundle again",
            )


def _weights(found: Described, path: Path | None) -> Iterator[Member]:
    separate = found.lock.weights.delivery == "separate"
    if path is None:
        return
    if not separate:
        raise UsageError(f"the image of {_name(found)} has its weights inside", fix="leave --weights out")
    apart.check(found.layout, found.lock, path)
    for source, place in run.mounts(path):
        own = _file("weights", PurePosixPath(place).name, source)
        yield attrs.evolve(own, plain=Plain(place.lstrip("/"), 0, own.size))


def _file(role: str, name: str, path: Path) -> Member:
    try:
        with path.open("rb") as stream:
            digest = hashlib.file_digest(stream, "sha256").hexdigest()
            return Member(role, digest, stream.tell(), name, path, name)
    except OSError as problem:
        raise SealError(f"cannot read: {problem.strerror}", where=str(path), fix="build the bundle again") from problem


def _blob(image: Layout, role: str, digest: str, title: str = "") -> Member:
    path = layouts.blob_path(image.path, digest)
    value = digest.removeprefix("sha256:")
    return Member(role, value, path.stat().st_size, f"blobs/sha256/{value}", path, title or role)


def _name(found: Described) -> str:
    return found.lock.profile.name


def _title(found: Described) -> str:
    return f"{_name(found)} for {found.lock.target.isa}, made by pih {found.lock.pih}: sh FILE help"


def _constants(
    found: Described, unpacked: int, parts: tuple[Part, ...], frame: str, members: list[str]
) -> dict[str, str | int]:
    return {
        "NAME": _name(found),
        "VERSION": found.lock.pih,
        "IMAGE": found.layout.digest.removeprefix("sha256:"),
        "LOCK": found.lock_digest.removeprefix("sha256:"),
        "ARCH": found.lock.target.arch,
        "ISA": found.lock.target.isa,
        "CPU_FLAGS": " ".join(found.flags),
        "DELIVERY": found.lock.weights.delivery,
        "WEIGHTS_PATH": WEIGHTS_PATH,
        "DIGESTS_PATH": DIGESTS_PATH,
        "WEIGHTS_NAMED": "yes" if found.lock.weights.pinned else "no",
        "UNPACKED": unpacked,
        "ENTRY": found.entry,
        "LOADER": found.loader,
        "PYTHON": found.python,
        "LIBRARIES": " ".join(found.libraries),
        "ENVIRONMENT": "\n".join(found.environment),
        "DEVICES": " ".join(found.devices),
        "PATHS": " ".join(found.paths),
        "NODES": " ".join(found.nodes),
        "DRIVERS": " ".join(found.drivers),
        "DRIVER_FOLDER": devices.FOLDER,
        "VARIABLES": " ".join(found.variables),
        "MAY_LISTEN": "yes" if found.listen else "no",
        "PAYLOAD_SIZE": sum(part.size for part in parts),
        "PART_COUNT": len(parts),
        "PARTS": "\n".join(f"{part.size} {part.sha256}" for part in parts),
        "FRAME": frame,
        "MEMBERS": "\n".join(members),
    }
