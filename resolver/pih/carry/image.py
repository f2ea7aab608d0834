"""What an installer must know of an image: each of its entries is looked at, and what the worker needs is found."""

from __future__ import annotations

import posixpath
import re
import tarfile
import zlib
from collections.abc import Iterable, Iterator

import attrs

from pih import lock as locks
from pih.bundle import layout as layouts
from pih.bundle import permissions, run
from pih.bundle.layout import Layer, Layout
from pih.lock import Lock
from pih.tarball import TarFile
from pih_runtime.errors import SealError
from pih_runtime.isa import ISA_FLAGS
from pih_steps import reach
from pih_steps.devices import FAMILIES

WEIGHTS_PATH, DIGESTS_PATH = run.WEIGHTS_FILE.lstrip("/"), run.DIGESTS_FILE.lstrip("/")
_BLOCK = 4096  # of the disk that a file is unpacked to
_LOADER = re.compile(r"(usr/)?lib(64)?/ld-linux-[a-z0-9_-]+\.so\.[0-9]")
_PYTHON = re.compile(r"usr/bin/python3\.[0-9]+")
_LIBRARIES = re.compile(r"(usr/lib/[a-z0-9_]+-linux-gnu)/[^/]+")
# What the lists of a shell hold without doubt: no control character, quote or backslash, no blank at either end.
_NAME = re.compile(r"(?! )[^\x00-\x1f\x7f\"\\]{1,1024}(?<! )")
_SETTING = re.compile(r"[A-Z][A-Z0-9_]*=[A-Za-z0-9/._:+-]*")
_FIX = "build the bundle again"


@attrs.frozen
class Plain:
    """The one file of an uncompressed layer. offset, size: of its content in the layer, in bytes."""

    path: str
    offset: int
    size: int


@attrs.frozen
class Described:
    """An image, looked through. Paths are relative to its root.

    titles: a word for each layer. plain: by the layer's digest. unpacked: bytes on a disk.
    environment: what the image sets. variables: names that the host's environment may give a value.
    """

    layout: Layout
    lock: Lock
    lock_digest: str
    titles: tuple[str, ...]
    plain: dict[str, Plain]
    unpacked: int
    loader: str
    python: str
    libraries: tuple[str, ...]
    entry: str
    environment: tuple[str, ...]
    variables: tuple[str, ...]
    devices: tuple[str, ...]
    paths: tuple[str, ...]
    families: tuple[str, ...]
    listen: bool

    @property
    def nodes(self) -> tuple[str, ...]:
        """Patterns of the families' devices, of which a host has some."""
        return tuple(node for name in self.families for node in FAMILIES[name].nodes)

    @property
    def drivers(self) -> tuple[str, ...]:
        """Libraries of the families' drivers."""
        return tuple(library for name in self.families for library in FAMILIES[name].libraries)

    @property
    def flags(self) -> tuple[str, ...]:
        """The processor's flags that the image needs, as /proc/cpuinfo spells them; none for another architecture."""
        return tuple(sorted(ISA_FLAGS.get(self.lock.target.isa, ())))


def describe(image: Layout) -> Described:
    """Read every layer once: digests, names and kinds of all entries. Raises SealError for what no bundle has."""
    files: dict[str, int] = {}
    links: dict[str, str] = {}
    plain: dict[str, Plain] = {}
    for layer in image.layers:
        before = len(files)
        last: tarfile.TarInfo | None = None
        for member in _members(image, layer):
            name = member.name
            if name in files or name in links:
                raise SealError(f"two entries are /{name}", where=layer.digest, fix=_FIX)
            if member.isreg():
                files[name], last = member.size, member
            elif member.issym():
                links[name] = member.linkname
        if layer.media_type == layouts.LAYER_TAR and len(files) == before + 1 and last is not None:
            plain[layer.digest] = Plain(last.name, last.offset_data, last.size)
    where = f"{image.path}: /{permissions.LOCK_FILE}"
    lock = locks.from_json(layouts.member(image, permissions.LOCK_FILE), where)
    asked = [plugin.permissions for plugin in lock.plugins]
    families = permissions.families_of(name for item in asked for name in item.devices)
    return Described(
        layout=image,
        lock=lock,
        lock_digest=_lock_digest(image),
        titles=_titles(image),
        plain=plain,
        unpacked=sum(-(-size // _BLOCK) * _BLOCK for size in files.values()) + _BLOCK * len(links),
        loader=_one(_LOADER, [*files, *links], image),
        python=_one(_PYTHON, list(files), image),
        libraries=tuple(sorted({match[1] for name in files if (match := _LIBRARIES.fullmatch(name))})),
        entry=_entry(image, files),
        environment=_environment(image),
        variables=_variables(lock, image, where),
        devices=_patterns(lock, where, [name for item in asked for name in item.devices if name not in families]),
        paths=_uncovered(_patterns(lock, where, [pattern for item in asked for pattern in item.paths]), files, where),
        families=families,
        listen=any(item.network == "listen" for item in asked),
    )


def _members(image: Layout, layer: Layer) -> Iterator[tarfile.TarInfo]:
    """A layer's entries, each of a kind and with names that can be unpacked by the tar of any host."""
    try:
        with layouts.archive(image, layer) as stream, TarFile.open(fileobj=stream, mode="r|", bufsize=1 << 20) as tar:
            for member in tar:
                problem = _problem(member)
                if problem:
                    raise SealError(f"/{member.name} {problem}", where=f"layer {layer.digest}", fix=_FIX)
                yield member
    except (tarfile.TarError, EOFError, ValueError, zlib.error) as problem:
        raise SealError(f"layer {layer.digest} is no archive: {problem}", where=str(image.path), fix=_FIX) from problem


def _problem(member: tarfile.TarInfo) -> str:
    if not (member.isreg() or member.isdir() or member.issym()):
        return "is neither file, folder nor link"
    for name in (member.name, member.linkname) if member.issym() else (member.name,):
        if not _NAME.fullmatch(name) or " -> " in name:
            return "has a name that a shell's lists do not hold"
    if member.name.startswith("/") or ".." in member.name.split("/"):
        return "leaves the root"
    if member.name.rpartition("/")[2].startswith(".wh."):
        return "deletes a file: no layer of a bundle does"
    target = posixpath.normpath(posixpath.join(posixpath.dirname(member.name), member.linkname))
    if member.issym() and (member.linkname.startswith("/") or target.split("/")[0] == ".."):
        return f"is a link to {member.linkname}, outside the root"
    return ""


def _patterns(lock: Lock, where: str, asked: list[str]) -> tuple[str, ...]:
    """Paths of the host, which may have a * for the host's shell to fill in."""
    wanted = {pattern for pattern in asked if not reach.given(pattern)}
    for pattern in wanted:
        permissions.check(lock.profile.name, pattern, where)
    return tuple(sorted(wanted))


def _uncovered(patterns: tuple[str, ...], files: Iterable[str], where: str) -> tuple[str, ...]:
    """The patterns; raises SealError for one of the host that would hide a file of the bundle."""
    for pattern in patterns:
        hides = re.compile(re.escape(pattern).replace(r"\*", "[^/]*") + "(/|$)")
        inside = next((name for name in files if hides.match(f"/{name}")), "")
        if inside:
            raise SealError(
                f"a plugin asks for {pattern} of the host, where the bundle has /{inside} of its own",
                where=where,
                fix="leave the plugin out, or have its author ask for less",
            )
    return patterns


def _variables(lock: Lock, image: Layout, where: str) -> tuple[str, ...]:
    names = {name: plugin.id for plugin in lock.plugins for name in plugin.permissions.environment}
    for name, plugin in names.items():
        permissions.check_variable(plugin, name, where)
    run.check_variables(image, names)
    return tuple(sorted(names))


def _titles(image: Layout) -> tuple[str, ...]:
    """The words that the image's history has for its layers; numbers where it has none."""
    history = image.config.get("history")
    said = [str(line.get("comment")) for line in history if isinstance(line, dict)] if isinstance(history, list) else []
    if len(said) == len(image.layers) and all(re.fullmatch(r"[a-z0-9-]+", word) for word in said):
        return tuple(f"layer-{word}" for word in said)
    return tuple(f"layer-{number}" for number in range(len(image.layers)))


def _lock_digest(image: Layout) -> str:
    digest = layouts.bundle_file(image).get("lock")
    if not isinstance(digest, str) or not re.fullmatch(r"sha256:[0-9a-f]{64}", digest):
        raise SealError("bundle.json names no lock", where=str(image.path), fix=_FIX)
    return digest


def _entry(image: Layout, files: dict[str, int]) -> str:
    entry = run.arguments_of(image)
    if len(entry) != 1 or entry[0].lstrip("/") not in files:
        raise SealError("the image's entry point is none of its files", where=str(image.path), fix=_FIX)
    return entry[0].lstrip("/")


def _environment(image: Layout) -> tuple[str, ...]:
    settings = tuple(f"{name}={value}" for name, value in run.environment_of(image).items())
    for setting in settings:
        if not _SETTING.fullmatch(setting):
            raise SealError(f"{setting!r} is no plain setting of the environment", where=str(image.path), fix=_FIX)
    return settings


def _one(pattern: re.Pattern[str], names: list[str], image: Layout) -> str:
    found = sorted(name for name in names if pattern.fullmatch(name))
    if not found:
        raise SealError(f"the image has no file {pattern.pattern}", where=str(image.path), fix=_FIX)
    return found[-1]
