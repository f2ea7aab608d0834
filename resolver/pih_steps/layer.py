"""One image layer and the list of its files: what wheels, app and base write.

The output folder has layer.tar.gz and files.json: path, size, digest (or a link's target),
the component each file is of, and the reason why it is there.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pih_steps import tar


@dataclass(frozen=True, slots=True)
class File:
    """An entry of the image with its explanation."""

    entry: tar.Entry
    component: str
    reason: str


def write(output: Path, files: Iterable[File], folders: Iterable[tuple[str, int]] = ()) -> None:
    """Write the folder `output`: the compressed layer and the list of its files."""
    ordered = sorted(files, key=lambda file: file.entry.path)
    output.mkdir(parents=True, exist_ok=True)
    with (output / "layer.tar.gz").open("wb") as stream:
        gzip = tar.Gzip(stream)
        tar.write(gzip, [file.entry for file in ordered], folders)
        gzip.finish()
    (output / "files.json").write_text(to_json([describe(file) for file in ordered]), encoding="utf-8")


def describe(file: File) -> dict[str, Any]:
    """The file's line in files.json and bundle.json."""
    line: dict[str, Any] = {"path": "/" + file.entry.path}
    if file.entry.target:
        line |= {"size": 0, "target": file.entry.target}
    else:
        size, digest = measure(file.entry.content)
        line |= {"size": size, "digest": digest}
    return line | {"component": file.component, "reason": file.reason}


def measure(content: bytes | Path) -> tuple[int, str]:
    """Size and digest of a file's content."""
    if isinstance(content, bytes):
        return len(content), "sha256:" + hashlib.sha256(content).hexdigest()
    with content.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
        return stream.tell(), "sha256:" + digest


def to_json(lines: list[dict[str, Any]]) -> str:
    """One line a file, so that two lists can be compared with diff."""
    body = ",\n".join(json.dumps(line, ensure_ascii=False) for line in lines)
    return f"[\n{body}\n]\n" if lines else "[]\n"
