"""Plugins from outside the source tree: archives that the lock names, unpacked beside the step's other trees.

params.plugins of a step: {artifact: {tree: path inside the archive, '' for the whole}}. To the step itself each is a
tree like any other, wherever the plugin comes from.
"""

from __future__ import annotations

import tarfile
from dataclasses import replace
from pathlib import Path

from pih_runtime.errors import BuildError
from pih_steps.spec import Spec, of_the_disk
from pih_steps.spec import artifact as artifact_of

PARAM = "plugins"


def placed(spec: Spec, folder: Path) -> Spec:
    """The specification with its plugins' archives unpacked below `folder`, as trees."""
    trees = dict(spec.trees)
    for number, (artifact, wanted) in enumerate(sorted(spec.params[PARAM].items())):
        root = folder / str(number)
        unpack(artifact_of(spec, artifact), root)
        for tree, inner in wanted.items():
            if inner.startswith("/") or ".." in inner.split("/"):
                raise BuildError(f"{inner!r} is no path inside a plugin", where=artifact)
            trees[tree] = root / inner
            if not trees[tree].exists():
                raise BuildError(f"the plugin has no {inner}", where=artifact, fix="write the lock again: pih lock")
    rest = {name: path for name, path in spec.artifacts.items() if name not in spec.params[PARAM]}
    return replace(spec, artifacts=rest, trees=trees)


def unpack(archive: Path, root: Path) -> None:
    """Unpack a plugin's archive to the new folder `root`: files and folders only, none outside it."""
    root.mkdir()
    try:
        with tarfile.open(archive, "r:") as tar:
            for member in tar:
                parts = member.name.split("/")
                if member.name.startswith("/") or {"", ".", ".."} & set(parts) or "\0" in member.name:
                    raise BuildError(f"{member.name!r} is no path below the archive", where=str(archive))
                target = root.joinpath(*parts)
                content = tar.extractfile(member) if member.isreg() else None
                if member.isdir():
                    target.mkdir()
                elif content is not None:
                    target.parent.mkdir(parents=True, exist_ok=True)
                    with target.open("xb") as writer:
                        writer.write(content.read())
                else:
                    raise BuildError(f"{member.name!r} is neither file nor folder", where=str(archive))
    except (OSError, tarfile.TarError) as problem:
        if of_the_disk(problem):
            raise
        raise BuildError(
            f"not a plugin's archive: {problem}", where=str(archive), fix="write the lock again: pih lock"
        ) from problem
