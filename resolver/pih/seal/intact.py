"""A bundle read whole: every byte of the image against its manifest, its list of files and its lock.

What the lock and the layers lead to is made again, the image's configuration, manifest, index and docker archive
included, and must be there byte for byte.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import attrs

from pih.build import extract, graph, tree
from pih.bundle import entries
from pih.bundle import layout as layouts
from pih.bundle.layout import Layout
from pih.inspect import bundle
from pih.inspect.bundle import Contents, File
from pih.inspect.opened import opened
from pih.lock import Lock
from pih.structure import unstructure
from pih_runtime.errors import SealError
from pih_steps import base, image, oci

LIST = f"/{layouts.BUNDLE_FILE}"
WEIGHTS, DIGESTS = f"/{image.WEIGHTS}", f"/{image.DIGESTS}"
FIX = "do not use it: build the bundle again, or copy it again from where it came"
_SOURCE = re.compile(r"(sha256|dirHash):[0-9a-f]{64}\Z")
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
    layout = layouts.read(path)
    held = opened(path)
    graph.check(held.lock)
    _agrees(held.contents, held.lock, layout)
    files = tuple(sorted(_files(held.contents, layout), key=lambda file: file.path))
    _image(held.contents, held.lock, layout)
    sources = _sources(layout, held.lock)
    return Image(layout, held.contents, held.lock, files, sources)


def entry(found: Image) -> dict[str, Any]:
    """The image's line in the index."""
    return oci.image_entry(found.blob, _architecture(found.lock), found.layout.reference)


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


def _agrees(contents: Contents, lock: Lock, layout: Layout) -> None:
    """The list of files and the lock speak of the same deployment."""

    def fail(what: str) -> SealError:
        return SealError(what, where=f"{layout.path}: {LIST}", fix=FIX)

    if contents.name != lock.profile.name:
        raise fail(f"it is the bundle of {contents.name!r}, and holds the lock of {lock.profile.name!r}")
    known = {*bundle.known(lock)}
    for file in contents.files:
        if file.component not in known:
            raise fail(f"{file.path} is of {file.component!r}, which the lock does not name")
    listed = {file.path: file for file in contents.files}
    if len(listed) != len(contents.files) or LIST in listed:
        raise fail("it lists a file twice, or itself")
    plan = listed.get("/pih/plan.json")
    if plan is None or plan.digest != f"sha256:{lock.plan.sha256}":
        raise fail(f"/pih/plan.json is not the plan of the lock, {lock.plan.sha256}")
    for path in (WEIGHTS, DIGESTS):
        if (path in listed) != (lock.weights.delivery == "embed"):
            what = path if path in listed else f"no {path}"
            raise fail(f"the lock says {lock.weights.delivery!r} of the delivery of weights, and the image has {what}")
    parts = {file.component for file in contents.files}
    for plugin in lock.plugins:
        if plugin.runtime is not None and plugin.id not in parts:
            raise fail(f"it has no file of {plugin.id}, which the lock names")


def _sources(layout: Layout, lock: Lock) -> dict[str, str]:
    """What the image was made from in the source tree: just what its lock says that it reads."""
    where = f"{layout.path}: {LIST}"
    found = layouts.bundle_file(layout).get("sources")
    wanted = set(lock.build.steps[-1].trees) - {graph.LOCK_TREE}
    if not isinstance(found, dict) or found.keys() != wanted or not all(map(_SOURCE.match, map(str, found.values()))):
        raise SealError("its sources are not those of its lock", where=where, fix=FIX)
    return found


def _image(contents: Contents, lock: Lock, layout: Layout) -> None:
    """Configuration and manifest are those that this lock and these layers lead to."""
    where = str(layout.path)
    raw, layers = unstructure(lock), _layers(layout)
    named = [
        oci.Layer(blob, layer.diff_id, title.name)
        for blob, layer, title in zip(layers, layout.layers, contents.layers, strict=True)
    ]
    settings = image.settings(contents.name, raw)
    config = oci.image_config(named, settings, _architecture(lock))
    if _digest(config) != layout.config_digest:
        raise SealError(
            f"configuration {layout.config_digest} is not that of a bundle of this lock", where=where, fix=FIX
        )
    if _digest(oci.image_manifest(oci.Blob(oci.CONFIG, layout.config_digest, len(config)), layers)) != layout.digest:
        raise SealError(f"manifest {layout.digest} is not that of a bundle of this lock", where=where, fix=FIX)
    if layout.reference != image.tag(contents.name, raw):
        raise SealError(
            f"the image is called {layout.reference!r}, not {image.tag(contents.name, raw)!r}",
            where=str(layout.path / "index.json"),
            fix=FIX,
        )


def _architecture(lock: Lock) -> str:
    return image.ARCHITECTURES.get(lock.target.arch, lock.target.arch)


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
        sha256, sha1 = hashlib.sha256(), _sha1(b"")
        for chunk in reader.content():
            sha256.update(chunk)
            sha1.update(chunk)
        if path != LIST and f"sha256:{sha256.hexdigest()}" != want.digest:
            raise fail(f"{path} has other bytes than {LIST} says")
        yield Read(path, item.size, sha256.hexdigest(), sha1.hexdigest(), "", want.component)
    if extra := empty - modes.keys():
        raise fail(f"folder /{min(extra)} holds nothing")


def _link(item: entries.Entry, want: File, fail: Callable[[str], SealError]) -> Read:
    try:
        extract.link_target(item.path, item.target)
    except extract.UnsafePathError as problem:
        raise fail(str(problem)) from problem
    if item.target != want.target or item.mode != 0o777:
        raise fail(f"/{item.path} links to {item.target!r}, not to {want.target!r}")
    text = item.target.encode()
    return Read(want.path, 0, hashlib.sha256(text).hexdigest(), _sha1(text).hexdigest(), item.target, want.component)


def _sha1(data: bytes) -> Any:
    """SPDX 2.3 wants one of each file; nothing here relies on it."""
    return hashlib.sha1(data, usedforsecurity=False)
