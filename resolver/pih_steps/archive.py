"""Step `archive`: an image layout as one file, which `podman load` and `docker load` take.

No lock names it: an outer builder that has an image may run it. steps: image.
"""

from __future__ import annotations

from pih_steps import tar
from pih_steps.spec import Spec, step


def run(spec: Spec) -> None:
    """Write the archive."""
    layout = step(spec, "image")
    files = [path for path in layout.rglob("*") if path.is_file()]
    with spec.output.open("wb") as sink:
        tar.write(sink, [tar.Entry(path.relative_to(layout).as_posix(), path) for path in files])
