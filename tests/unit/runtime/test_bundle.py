"""bundle.json against what lies there."""

import json
import os

import pytest

from pih_runtime import bundle
from pih_runtime.errors import SealError
from tests.integration.worker.toy_bundle import seal


@pytest.fixture
def root(tmp_path):
    (tmp_path / "lib/a").mkdir(parents=True)
    (tmp_path / "weights").mkdir()
    (tmp_path / "lock.json").write_text("{}")
    (tmp_path / "lib/a/b.pyc").write_bytes(b"code")
    (tmp_path / "weights/weights.safetensors").write_bytes(b"weights")
    seal(tmp_path)
    return tmp_path


def refused(root, *words):
    with pytest.raises(SealError) as caught:
        bundle.verify(root)
    assert caught.value.exit_code == 8
    assert all(word in str(caught.value) for word in words), str(caught.value)


def test_what_lies_there_as_listed_passes(root):
    found = bundle.verify(root)
    assert found.name == "toy"
    assert found.files["/pih/lib/a/b.pyc"].startswith("sha256:")
    assert found.digest.startswith("sha256:")
    assert bundle.digest_of(found, "/pih/none") is None


def test_files_outside_of_pih_and_the_weights_are_not_its_business(root):
    listed = json.loads((root / "bundle.json").read_text())
    listed["files"].append({"path": "/usr/bin/python3.11", "digest": "sha256:0"})
    (root / "bundle.json").write_text(json.dumps(listed))
    (root / "weights/weights.safetensors").write_bytes(b"other")
    (root / "weights/lost+found").mkdir()
    bundle.verify(root)


@pytest.mark.parametrize("damage", [b"c0de", b"", b"code "])
def test_a_changed_file_is_named(root, damage):
    (root / "lib/a/b.pyc").write_bytes(damage)
    refused(root, "lib/a/b.pyc", "bundle.json says sha256:")


def test_a_missing_file_is_named(root):
    (root / "lib/a/b.pyc").unlink()
    refused(root, "lib/a/b.pyc", "missing")


@pytest.mark.parametrize("name", ["lib/a/extra.pyc", "other", "lib/c/d"])
def test_an_extra_file_is_named(root, name):
    (root / name).parent.mkdir(exist_ok=True)
    (root / name).write_text("x")
    refused(root, name, "not listed")


def test_a_symlink_counts_by_its_target_and_is_not_followed(root):
    (root / "lib/link").symlink_to("a/b.pyc")
    refused(root, "lib/link", "not listed")
    listed = json.loads((root / "bundle.json").read_text())
    listed["files"].append({"path": "/pih/lib/link", "target": "a/b.pyc"})
    (root / "bundle.json").write_text(json.dumps(listed))
    bundle.verify(root)
    (root / "lib/link").unlink()
    (root / "lib/link").symlink_to("../lock.json")
    refused(root, "lib/link", "-> ../lock.json")


def test_a_file_replaced_by_a_symlink_or_a_pipe_is_refused(root):
    (root / "lib/a/b.pyc").rename(root / "weights/b.pyc")
    (root / "lib/a/b.pyc").symlink_to(root / "weights/b.pyc")
    refused(root, "lib/a/b.pyc", "->")
    (root / "lib/a/b.pyc").unlink()
    os.mkfifo(root / "lib/a/b.pyc")
    refused(root, "neither a file")


def test_another_lock_than_it_was_built_from_is_refused(root):
    listed = json.loads((root / "bundle.json").read_text())
    listed["lock"] = "sha256:1234"
    (root / "bundle.json").write_text(json.dumps(listed))
    refused(root, "the bundle was built from sha256:1234")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (None, "cannot read"),
        ("{", "list of files"),
        ("[]", "list of files"),
        ('{"schema": 2}', "schema 2"),
        ("{}", "schema"),
        ('{"schema": 1, "name": "a", "lock": "b", "files": [{"path": 3}]}', "list of files"),
        ("\0" * 5000, "list of files"),
        ("[" * 100_000, "list of files"),
    ],
)
def test_a_bundle_without_its_list_is_refused(root, text, words):
    (root / "bundle.json").unlink()
    if text is not None:
        (root / "bundle.json").write_text(text)
    refused(root, words)


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-32-be"])
def test_a_list_is_utf_8_alone(root, encoding):
    """An image has no other encodings: what guesses them ends there with an error of its own."""
    path = root / "bundle.json"
    path.write_bytes(path.read_text().encode(encoding))
    refused(root, "list of files")
