"""What an image's lock, its list of files and its configuration say of each other, whatever form the image is in."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from pih.build import graph
from pih.bundle import layout as layouts
from pih.inspect import bundle
from pih.inspect.bundle import Contents
from pih.lock import Lock
from pih.structure import unstructure
from pih_runtime.errors import SealError
from pih_steps import image, oci
from pih_steps.spec import LOCK_TREE

LIST = f"/{layouts.BUNDLE_FILE}"
FIX = "do not use it: build the bundle again, or copy it again from where it came"
_EMBEDDED = (f"/{image.WEIGHTS}", f"/{image.DIGESTS}")
_SOURCE = re.compile(r"(sha256|dirHash):[0-9a-f]{64}\Z")


def check(contents: Contents, lock: Lock, where: str) -> None:
    """The list of files and the lock speak of the same deployment; raises SealError where they do not."""

    def fail(what: str) -> SealError:
        return SealError(what, where=f"{where}: {LIST}", fix=FIX)

    graph.check(lock)
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
    for path in _EMBEDDED:
        if (path in listed) != (lock.weights.delivery == "embed"):
            what = path if path in listed else f"no {path}"
            raise fail(f"the lock says {lock.weights.delivery!r} of the delivery of weights, and the image has {what}")
    parts = {file.component for file in contents.files}
    for plugin in lock.plugins:
        if plugin.runtime is not None and plugin.id not in parts:
            raise fail(f"it has no file of {plugin.id}, which the lock names")


def sources(listed: Mapping[str, Any], lock: Lock, where: str) -> dict[str, str]:
    """What the image was made from in the source tree, by its parsed list of files: just what its lock says it reads.

    Path → digest as `pih_steps.source` gives it.
    """
    found = listed.get("sources")
    wanted = set(lock.build.steps[-1].trees) - {LOCK_TREE}
    if not isinstance(found, dict) or found.keys() != wanted or not all(map(_SOURCE.match, map(str, found.values()))):
        raise SealError("its sources are not those of its lock", where=f"{where}: {LIST}", fix=FIX)
    return found


def configuration(name: str, lock: Lock, layers: Iterable[tuple[str, str]]) -> bytes:
    """What this lock and these layers lead to. layers: (title, digest of the archive) of each, the lowest first."""
    named = [oci.Layer(oci.Blob(oci.LAYER, digest, 0), digest, title) for title, digest in layers]
    return oci.image_config(named, image.settings(name, unstructure(lock)), architecture(lock))


def tag(name: str, lock: Lock) -> str:
    """What engines call the image."""
    return image.tag(name, unstructure(lock))


def architecture(lock: Lock) -> str:
    """The target's processor as images name it."""
    return image.ARCHITECTURES.get(lock.target.arch, lock.target.arch)
