"""Remembers what lowering gave, and the like, by all that went in, so that `pih lock` on an unchanged tree is quick.

Only a shortcut: an entry that is missing, does not read or cannot be kept is made again. The key covers the code that
lowers.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from pih.reading import json_of
from pih.structure import StructureError, structure, unstructure
from pih.writing import replace

Made = TypeVar("Made")
# What lowering reads beside the checkpoint, the model plugin and the kernel report: its own code.
_CODE = ("resolver/pih_steps/lower", "runtime/pih_runtime/ops.py", "runtime/pih_runtime/plan.py")


def remembered(
    folder: Path | None,
    root: Path,
    params: Mapping[str, Any],
    artifacts: Mapping[str, str],
    trees: tuple[str, ...],
    make: Callable[[], Made],
    kind: type[Made],
) -> Made:
    """The entry for these inputs in `folder`, made and kept where there is none; always made where there is no folder.

    artifacts: sha256 of each artifact that is read, by name. trees: the files and folders of the source tree.
    kind: the class of what is made.
    """
    if folder is None:
        return make()
    code = {tree: _digest(root / tree) for tree in (*_CODE, *trees)}
    key = json.dumps([params, artifacts, code], sort_keys=True)
    path = folder / f"{hashlib.sha256(key.encode()).hexdigest()}.json"
    try:
        return structure(json_of(path.read_bytes()), kind)
    except (OSError, ValueError, StructureError):
        made = make()
        with suppress(OSError):  # a folder that cannot be written: it is made again the next time
            _keep(path, json.dumps(unstructure(made)))
        return made


def _digest(path: Path) -> str:
    files = sorted(path.rglob("*.py")) + sorted(path.rglob("*.toml")) if path.is_dir() else [path]
    total = hashlib.sha256()
    for file in files:
        total.update(f"{file.relative_to(path)}\0".encode())
        total.update(hashlib.sha256(file.read_bytes()).digest())
    return total.hexdigest()


def _keep(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    replace(path, text)
