"""What the Bazel builder hands to Bazel, and reads from it."""

import json
import shutil
from pathlib import Path

import pytest

from pih.build import bazel, store
from pih.build.progress import silent
from pih_runtime.errors import BuildError

ROOT = Path(__file__).resolve().parents[3]
needs_template = pytest.mark.skipif(
    not (ROOT / bazel.TEMPLATE).is_dir(), reason="the template is a workspace, which Bazel's own tests cannot be given"
)


@pytest.fixture
def shelf(tmp_path):
    return store.open_store(tmp_path / "store")


def action(mnemonic, output, **more):
    return json.dumps(
        {"mnemonic": mnemonic, "listedOutputs": [f"bazel-out/k8-fastbuild/bin/{output}"], **more}, indent=2
    )


def test_the_steps_that_ran_are_read_from_the_execution_log():
    log = "\n".join(
        [
            action("PihInterpreter", "chat.python"),
            action("PihStep", "chat.steps/app", cacheHit=False),
            action("PihStep", "chat.steps/base", cacheHit=True),
            action("PihStep", "chat.steps/wheels", remoteCacheHit=True),
            action("PihStep", "chat", remoteCacheHit=False),
        ]
    )
    assert list(bazel.executed(log + "\n")) == ["app", "image"]
    assert list(bazel.executed("")) == []


def test_the_cache_holds_links_to_the_store(shelf, tmp_path):
    (tmp_path / "file").write_bytes(b"artifact")
    digest = shelf.add_file(tmp_path / "file")
    for _ in range(2):
        cache = bazel.fill_cache([digest], shelf)
        assert (cache / "content_addressable/sha256" / digest / "file").samefile(shelf.path(digest))


def test_the_cache_follows_a_store_whose_file_another_builder_shares(shelf, tmp_path):
    (tmp_path / "file").write_bytes(b"artifact")
    digest = shelf.add_file(tmp_path / "file")
    cache = bazel.fill_cache([digest], shelf)
    (tmp_path / "file").replace(shelf.path(digest))
    bazel.fill_cache([digest], shelf)
    assert (cache / "content_addressable/sha256" / digest / "file").samefile(shelf.path(digest))


def test_where_no_link_can_be_the_cache_holds_a_copy(shelf, tmp_path, monkeypatch):
    def refuse(*_paths):
        raise PermissionError

    (tmp_path / "file").write_bytes(b"artifact")
    digest = shelf.add_file(tmp_path / "file")
    monkeypatch.setattr("os.link", refuse)
    cache = bazel.fill_cache([digest], shelf)
    assert (cache / "content_addressable/sha256" / digest / "file").read_bytes() == b"artifact"


@needs_template
def test_the_workspace_is_the_template_with_this_lock(shelf, tmp_path):
    lock = tmp_path / "x.lock.json"
    lock.write_text("{}")
    made = bazel.write_workspace("robot", lock, ROOT, shelf)
    assert (made / "robot.lock.json").read_text() == "{}"
    assert 'lock = "robot.lock.json"' in (made / "BUILD.bazel").read_text()
    for name in ("MODULE.bazel", "WORKSPACE.bazel"):
        text = (made / name).read_text()
        assert f'path = "{ROOT}"' in text
        assert '"//:robot.lock.json"' in text


@needs_template
def test_what_has_not_changed_is_left_alone(shelf, tmp_path):
    lock = tmp_path / "x.lock.json"
    lock.write_text("{}")
    made = bazel.write_workspace("robot", lock, ROOT, shelf)
    before = {path: path.stat().st_ino for path in made.iterdir()}
    lock.write_text("[]")
    bazel.write_workspace("robot", lock, ROOT, shelf)
    assert {path.name for path in made.iterdir() if path.stat().st_ino != before[path]} == {"robot.lock.json"}


def run(tmp_path, script):
    (tmp_path / "bin").mkdir()
    if script:
        (tmp_path / "bin/bazel").write_text(f"#!{shutil.which('sh')}\n{script}\n")
        (tmp_path / "bin/bazel").chmod(0o755)
    bazel._run(["bazel", "build"], tmp_path, {"PATH": str(tmp_path / "bin")}, silent)


def test_without_bazel_the_error_says_what_to_install(tmp_path):
    with pytest.raises(BuildError, match="bazel is not installed") as caught:
        run(tmp_path, "")
    assert "bazel-bootstrap" in caught.value.fix


def test_a_failure_has_bazels_last_words(tmp_path):
    with pytest.raises(BuildError, match="numpy is not in PIH's store"):
        run(tmp_path, 'echo "ERROR: numpy is not in PIH\'s store" >&2; exit 1')
