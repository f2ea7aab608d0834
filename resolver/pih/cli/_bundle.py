"""The argument BUNDLE of commands that look into one."""

from __future__ import annotations

import os
from pathlib import Path

from pih.build.progress import renderer
from pih.bundle import stored
from pih.cli import _workspace
from pih.inspect.opened import Opened, opened, opened_image


def held(bundle: str) -> Opened:
    """A layout, archive or unpacked root by its path, or an image in an engine's store by its name there."""
    image = stored.named(bundle)
    if image is None:
        return opened(Path(bundle))
    with renderer() as listener:
        return opened_image(image, _workspace.store(), os.environ, listener)
