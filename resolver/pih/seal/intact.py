"""A layout read whole: every byte of the image against its manifest, its list of files and its lock.

What the lock and the layers lead to is made again, the image's configuration, manifest, index and docker archive
included, and must be there byte for byte.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import attrs

from pih.build import extract, tree
from pih.bundle import entries
from pih.bundle import layout as layouts
from pih.bundle.layout import Layout
from pih.inspect.bundle import Contents, File
from pih.inspect.opened import opened_layout
from pih.lock import Lock
from pih.seal import agreement
from pih.seal.agreement import FIX, LIST
from pih_runtime.errors import SealError
from pih_steps import base, oci

_FILE_MODES = (0o644, 0o755)


@attrs.frozen
class Read:
    """A file or link of the image as it is there. Both digests in hex; of a link, of the text of its target."""

    path: str
    size: int
    sha256: str
    sha1: str
    target: str
    component: str


@attrs.frozen
class Image:
    """A bundle in which everything holds together. files: all of them, by path.

    sources: what it was built from in the source tree, path → digest as `pih_steps.source` gives it.
    """

    layout: Layout
    contents: Contents
    lock: Lock
    files: tuple[Read, ...]
    sources: dict[str, str]

    @property
    def blob(self) -> oci.Blob:
        """The image's manifest, which attached documents are about."""
        return oci.Blob(oci.MANIFEST, self.layout.digest, len(oci.canonical(self.layout.manifest)))


def read(path: Path) -> Image:
    """Read a layout's image; raises SealError that names the blob or file for anything that is not as it should be."""
    found = of_layout(layouts.read(path))
    check_manifest(found)
    return found


def of_layout(layout: Layout) -> Image:
    """As `read`, of a layout that something else than pih may have written: its manifest is not judged."""
    held = opened_layout(layout)
    contents, lock, where = held.contents, held.lock, str(layout.path)
    agreement.check(contents, lock, where)
    files = tuple(sorted(_files(contents, layout), key=lambda file: file.path))
    titles = [(title.name, layer.diff_id) for title, layer in zip(contents.layers, layout.layers, strict=True)]
    if _digest(agreement.configuration(contents.name, lock, titles)) != layout.config_digest:
        what = f"configuration {layout.config_digest} is not that of a bundle of this lock"
        raise SealError(what, where=where, fix=FIX)
    sources = agreement.sources(layouts.bundle_file(layout), lock, where)
    return Image(layout, contents, lock, files, sources)


def entry(found: Image) -> dict[str, Any]:
    """The image's line in the index."""
    return oci.image_entry(found.blob, agreement.architecture(found.lock), found.layout.reference)


def check_folder(found: Image, index: bytes, added: Mapping[str, bytes]) -> None:
    """The layout's folder holds its parts and nothing else. added: digest → bytes of what is attached to the image."""
    layout = found.layout
    blobs = {layout.digest, layout.config_digest, *(layer.digest for layer in layout.layers), *added}
    archive = oci.docker_archive(_blob(layout.manifest["config"]), _layers(layout), layout.reference)
    for name, data in {"oci-layout": oci.VERSION, "index.json": index, "manifest.json": archive}.items():
        _same(layout.path / name, data, f"{name} does not say what is in the layout")
    for digest, data in added.items():
        _same(oci.path_of(layout.path, digest), data, f"blob {digest} has other bytes than it should have")
    wanted = {"oci-layout", "index.json", "manifest.json"} | {f"blobs/{name.replace(':', '/')}" for name in blobs}
    for item in tree.below(layout.path):
        name = Path(item.path).relative_to(layout.path).as_posix()
        if item.is_dir(follow_symlinks=False) and name in ("blobs", "blobs/sha256"):
            continue
        if name not in wanted:
            raise SealError(f"{name} is no part of the bundle", where=item.path, fix=FIX)


def _same(path: Path, data: bytes, what: str) -> None:
    try:
        right = not path.is_symlink() and path.stat().st_size == len(data) and path.read_bytes() == data
    except OSError as problem:
        raise SealError(f"{path.name} cannot be read: {problem.strerror}", where=str(path), fix=FIX) from problem
    if not right:
        raise SealError(what, where=str(path), fix=FIX)


def check_manifest(found: Image) -> None:
    """Manifest and name are those that a bundle of this lock is shipped with, given the layers of its layout."""
    layout, where = found.layout, str(found.layout.path)
    config = _blob(layout.manifest["config"])
    if _digest(oci.image_manifest(config, _layers(layout))) != layout.digest:
        raise SealError(f"manifest {layout.digest} is not that of a bundle of this lock", where=where, fix=FIX)
    name = agreement.tag(found.contents.name, found.lock)
    if layout.reference != name:
        index = str(layout.path / "index.json")
        raise SealError(f"the image is called {layout.reference!r}, not {name!r}", where=index, fix=FIX)


def _layers(layout: Layout) -> list[oci.Blob]:
    return [oci.Blob(layer.media_type, layer.digest, layer.size) for layer in layout.layers]


def _blob(descriptor: dict[str, Any]) -> oci.Blob:
    return oci.Blob(descriptor["mediaType"], descriptor["digest"], descriptor["size"])


def _digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def _files(contents: Contents, layout: Layout) -> Iterator[Read]:
    """Every file of every layer, each as the list says; raises SealError for one that is wrong, missing or extra."""
    for title, layer in zip(contents.layers, layout.layers, strict=True):
        listed = {file.path: file for file in contents.files if file.layer == title.name}
        if title.name == "deployment":  # the list is in the layer of the deployment's own files, and not in itself
            listed[LIST] = File(LIST, -1, "", "", "pih", "", title.name)
        where = f"{layout.path}: layer {title.name} ({layer.digest})"
        with layouts.archive(layout, layer) as stream:
            try:
                yield from _of_layer(stream, listed, where)
            except entries.NotCanonicalError as problem:
                raise SealError(str(problem), where=where, fix=FIX) from problem
        if listed:
            raise SealError(f"{min(listed)} is listed in {LIST}, and missing", where=where, fix=FIX)


def _of_layer(stream: Any, listed: dict[str, File], where: str) -> Iterator[Read]:
    """Takes what it finds out of `listed`."""

    def fail(what: str) -> SealError:
        return SealError(what, where=where, fix=FIX)

    reader = entries.Reader(stream)
    modes = dict(base.FOLDERS)
    empty: set[str] = set()
    for item in reader:
        path = f"/{item.path}"
        empty.difference_update(item.path[:end] for end, sign in enumerate(item.path) if sign == "/")
        if item.kind == entries.FOLDER:
            if item.mode != modes.get(item.path, 0o755):
                raise fail(f"folder {path} has mode {item.mode:o}")
            empty.add(item.path)
            continue
        want = listed.pop(path, None)
        if want is None:
            raise fail(f"{path} is not listed in {LIST}")
        if item.kind == entries.LINK:
            yield _link(item, want, fail)
            continue
        if want.target or item.mode not in _FILE_MODES or (want.size != item.size and path != LIST):
            raise fail(f"{path} has another kind, mode or size than it should have")
        found = digested(want, reader.content())
        if path != LIST and f"sha256:{found.sha256}" != want.digest:
            raise fail(f"{path} has other bytes than {LIST} says")
        yield found
    if extra := empty - modes.keys():
        raise fail(f"folder /{min(extra)} holds nothing")


def _link(item: entries.Entry, want: File, fail: Callable[[str], SealError]) -> Read:
    try:
        extract.link_target(item.path, item.target)
    except extract.UnsafePathError as problem:
        raise fail(str(problem)) from problem
    if item.target != want.target or item.mode != 0o777:
        raise fail(f"/{item.path} links to {item.target!r}, not to {want.target!r}")
    return linked(want)


def digested(file: File, content: Iterable[bytes]) -> Read:
    """A listed file as its bytes are."""
    # SPDX 2.3 wants a SHA-1 of each file; nothing here relies on it.
    sha256, sha1, size = hashlib.sha256(), hashlib.sha1(usedforsecurity=False), 0
    for chunk in content:
        sha256.update(chunk)
        sha1.update(chunk)
        size += len(chunk)
    return Read(file.path, size, sha256.hexdigest(), sha1.hexdigest(), "", file.component)


def linked(file: File) -> Read:
    """A link that leads where it is listed to."""
    text = digested(file, [file.target.encode()])
    return attrs.evolve(text, size=0, target=file.target)
