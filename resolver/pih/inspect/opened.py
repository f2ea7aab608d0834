"""A bundle in any form that an operator has it in, with its lock.

An image layout, an archive of one, the root that it was unpacked to or an installation of it, an image in the store of
podman or docker.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import attrs

from pih import lock as locks
from pih.build.progress import Listener
from pih.build.store import Store
from pih.bundle import archive, own, stored
from pih.bundle import layout as layouts
from pih.bundle.layout import Layout
from pih.inspect import device_code
from pih.inspect.bundle import Contents, Layer, described, listed, of_layout
from pih.inspect.device_code import DeviceCode
from pih.lock import Lock
from pih.seal import summary
from pih.seal.summary import Summary
from pih_runtime.errors import SealError

_LOCK_FILE = "pih/lock.json"
_FIX = "name the folder of an image layout, an archive of it, the root that it was unpacked to, or podman:IMAGE"


@attrs.frozen
class Opened:
    """What is in a bundle, and the decisions that it carries out. seal: what it says of itself; None without one.

    code: for its device, None without one.
    sealable: whether a seal would be seen: engines' stores and unpacked images keep none.
    """

    contents: Contents
    lock: Lock
    seal: Summary | None = None
    code: DeviceCode | None = None
    sealable: bool = attrs.field(default=False, eq=False)


def opened(path: Path) -> Opened:
    """Read list of files and lock; raises SealError where they do not go together. The files' bytes are not read."""
    if path.is_file():
        with archive.outlined(path) as folder:
            held = opened(folder)
        return attrs.evolve(held, contents=attrs.evolve(held.contents, form="an archive of an image layout"))
    if root := root_of(path):
        return opened_root(root)
    image = layouts.read(path)
    return attrs.evolve(opened_layout(image), seal=summary.of(image), sealable=True)


def root_of(path: Path) -> Path | None:
    """The unpacked image at a path: the path itself, a generation of an installation, the current one of a prefix."""
    places = (path, path / "root", path / "current" / "root")
    return next((place for place in places if (place / layouts.BUNDLE_FILE).is_file()), None)


def opened_layout(image: Layout) -> Opened:
    """As `opened`, of a layout that was read already; its seal is not looked at."""
    return _paired(of_layout(image), partial(layouts.member, image), image.path)


def opened_image(image: stored.Named, store: Store, environment: Mapping[str, str], listener: Listener) -> Opened:
    """As `opened`, of an image in an engine's store. Its layers were read whole, now or by an earlier call.

    What the store has thrown away is '' and 0: the manifest's digest, what layers were shipped as.
    """
    kept = stored.kept(image, store, environment, listener)
    with own.dropped_if_damaged(kept.path, store, listener), stored.told_as(image, kept.path):

        def read(name: str) -> bytes:
            return _read(kept.path / "described" / name.rpartition("/")[2])

        contents = described(layouts.read(kept.path), layouts.parsed(read(layouts.BUNDLE_FILE), Path(image.text)))
        held = _paired(contents, read, Path(image.text))
    if not kept.whole:
        layers = tuple(attrs.evolve(layer, digest="", compressed=0) for layer in contents.layers)
        contents = attrs.evolve(contents, digest="", layers=layers)
    form = f"{image.engine}'s store; every layer was read, and is what the image's configuration names"
    return attrs.evolve(held, contents=attrs.evolve(contents, reference=image.name, form=form))


def bundle_file(root: Path) -> dict[str, Any]:
    """The list of files of an unpacked image, /pih/bundle.json."""
    path = root / layouts.BUNDLE_FILE
    return layouts.parsed(_read(path), path)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as problem:
        raise SealError(f"cannot be read: {problem.strerror}", where=str(path), fix=_FIX) from problem


def _paired(contents: Contents, read: Callable[[str], bytes], path: Path) -> Opened:
    """read: a file of the image."""
    lock = read(_LOCK_FILE)
    if contents.lock != "sha256:" + hashlib.sha256(lock).hexdigest():
        raise SealError(f"/{_LOCK_FILE} is not the lock that the bundle was built from", where=str(path), fix=_FIX)
    decisions = locks.from_json(lock, f"{path}: /{_LOCK_FILE}")
    return Opened(contents, decisions, code=device_code.of_bundle(contents, decisions.target, read, str(path)))


def opened_root(root: Path) -> Opened:
    """As `opened`, of an unpacked image: its layers are told apart by the list of files alone, and have no digests."""
    name, digest, files = listed(bundle_file(root), str(root / layouts.BUNDLE_FILE))
    layers = tuple(
        Layer(title, "", sum(file.size for file in files if file.layer == title), 0)
        for title in dict.fromkeys(file.layer for file in files)
    )
    contents = Contents(name, "", digest, "", layers, files, form="an unpacked image")
    return _paired(contents, lambda name: _read(root / name), root)
