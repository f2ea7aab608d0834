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


def held(bundle: str) -> Opened:
    """A layout, archive or unpacked root by its path, or an image in an engine's store by its name there."""
    image = stored.named(bundle)
    if image is None:
        with _workspace.own(Path(bundle)):
            return opened(Path(bundle))
    with renderer() as listener:
        return opened_image(image, _workspace.store(), os.environ, listener)


@contextmanager
def layout(bundle: str) -> Iterator[Path]:
    """The folder of a layout or of what an archive holds; raises UsageError for a form that keeps no layers."""
    path, fix = Path(bundle), "name the folder of an image layout, or an archive of one"
    if not path.exists() and stored.named(bundle) is None:
        raise UsageError("there is no such bundle", where=bundle, fix=fix)
    if not path.exists() or root_of(path):
        raise UsageError("this form of a bundle keeps neither its layers as shipped nor a seal", where=bundle, fix=fix)
    with _workspace.own(path), archive.unpacked(path) as folder:
        yield folder
