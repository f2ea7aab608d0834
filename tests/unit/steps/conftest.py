"""A specification made of plain values, and small inputs of steps."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
import zipfile

import pytest

from pih_steps.spec import Spec


@pytest.fixture
def make_spec(tmp_path):
    def make(**fields):
        defaults = {"params": {}, "artifacts": {}, "trees": {}, "steps": {}, "tools": (), "output": tmp_path / "out"}
        return Spec(**(defaults | fields))

    return make


@pytest.fixture
def make_wheel(tmp_path):
    def make(name, members):
        path = tmp_path / f"{name}-1.0-py3-none-any.whl"
        with zipfile.ZipFile(path, "w") as archive:
            for member, data in members.items():
                archive.writestr(member, data)
        return path

    return make


@pytest.fixture
def read_layer():
    """(path → content, link target or None for a folder) of a layer, and its list of files by path."""

    def read(folder):
        with tarfile.open(fileobj=io.BytesIO(gzip.decompress((folder / "layer.tar.gz").read_bytes()))) as archive:
            entries = {m.name: archive.extractfile(m).read() if m.isfile() else (m.linkname or None) for m in archive}
        return entries, {line["path"]: line for line in json.loads((folder / "files.json").read_bytes())}

    return read
