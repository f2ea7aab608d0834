"""The argument BUNDLE of commands that look into one."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pih.build.progress import renderer
from pih.bundle import archive, stored
from pih.cli import _workspace
from pih.inspect.opened import Opened, opened, opened_image, root_of
from pih_runtime.errors import UsageError

_PARTS = ("oci-layout", "index.json", "blobs")
_FIX = "name the folder of an image layout, or an archive of one"


def there(bundle: str) -> Path:
    """The path of a bundle; raises UsageError where nothing is there that could be one."""
    path = Path(bundle)
    if not bundle or not path.exists():
        raise UsageError("there is no such bundle", where=bundle, fix=_FIX)
    if not path.is_file() and not path.is_dir():
        raise UsageError("this is neither a folder nor a file", where=bundle, fix=_FIX)
    if path.is_dir() and not root_of(path) and not any((path / name).exists() for name in _PARTS):
        raise UsageError("there is no bundle in this folder", where=bundle, fix=_FIX)
    return path


def held(bundle: str) -> Opened:
    """A layout, archive or unpacked root by its path, or an image in an engine's store by its name there."""
    image = stored.named(bundle)
    if image is None:
        path = there(bundle)
        with _workspace.own(path):
            return opened(path)
    with renderer() as listener:
        return opened_image(image, _workspace.store(), os.environ, listener)


@contextmanager
def layout(bundle: str) -> Iterator[Path]:
    """The folder of a layout or of what an archive holds; raises UsageError for a form that keeps no layers."""
    path = there(bundle) if stored.named(bundle) is None else None
    if path is None or root_of(path):
        form = "what is installed or unpacked" if path else "an engine's store"
        what = f"{form} keeps neither the layers as shipped nor a seal"
        raise UsageError(what, where=bundle, fix="name the image layout that it came from, or an archive of that")
    with _workspace.own(path), archive.unpacked(path) as folder:
        yield folder
