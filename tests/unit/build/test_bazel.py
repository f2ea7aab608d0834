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


def test_a_checkout_in_tmp_is_shown_to_the_sandbox(tmp_path):
    """That of Bazel 7 has a /tmp of its own, and a module's files are links into the checkout."""
    (tmp_path / "link").symlink_to("/tmp/my:work/pih")
    assert bazel.sandbox_options(tmp_path / "link") == [r"--sandbox_add_mount_pair=/tmp/my\:work/pih"]
    assert bazel.sandbox_options(Path("/home/me/pih")) == bazel.sandbox_options(Path("/tmpfiles/pih")) == []


def test_where_no_link_can_be_the_cache_holds_a_copy(shelf, tmp_path, monkeypatch):
    def refuse(*_paths):
        raise PermissionError

    (tmp_path / "file").write_bytes(b"artifact")
    digest = shelf.add_file(tmp_path / "file")
    monkeypatch.setattr("os.link", refuse)
    cache = bazel.fill_cache([digest], shelf)
    assert (cache / "content_addressable/sha256" / digest / "file").read_bytes() == b"artifact"


@pytest.fixture
def lock(tmp_path):
    path = tmp_path / "x.lock.json"
    path.write_text("{}")
    return path


@needs_template
def test_the_workspace_is_the_template_with_this_lock(lock, tmp_path):
    made = tmp_path / "workspace"
    bazel.write_workspace(made, "robot", lock, ROOT)
    assert (made / "robot.lock.json").read_text() == "{}"
    assert 'lock = "robot.lock.json"' in (made / "BUILD.bazel").read_text()
    for name in ("MODULE.bazel", "WORKSPACE.bazel"):
        text = (made / name).read_text()
        assert f'path = "{ROOT}"' in text
        assert '"//:robot.lock.json"' in text


@needs_template
def test_a_checkout_and_a_name_may_have_the_templates_words_in_them(lock, tmp_path):
    checkout = tmp_path / "chat/../pih chat"
    shutil.copytree(ROOT / bazel.TEMPLATE, checkout / bazel.TEMPLATE)
    made = tmp_path / "workspace"
    bazel.write_workspace(made, "chatter", lock, checkout)
    assert f'path = "{checkout}"' in (made / "WORKSPACE.bazel").read_text()
    assert 'lock = "chatter.lock.json"' in (made / "BUILD.bazel").read_text()


@needs_template
def test_what_has_not_changed_is_left_alone(lock, tmp_path):
    made = tmp_path / "workspace"
    bazel.write_workspace(made, "robot", lock, ROOT)
    before = {path: path.stat().st_ino for path in made.iterdir()}
    lock.write_text("[]")
    bazel.write_workspace(made, "robot", lock, ROOT)
    assert {path.name for path in made.iterdir() if path.stat().st_ino != before[path]} == {"robot.lock.json"}


def test_what_bazel_made_stays_after_its_next_build(shelf, tmp_path):
    output = tmp_path / "bin/robot"
    (output / "blobs").mkdir(parents=True)
    (output / "blobs/one").write_text("first")
    first = bazel._kept(output, "image", shelf, silent)
    assert bazel._kept(output, "image", shelf, silent) == first
    (output / "blobs/one").write_text("other")
    second = bazel._kept(output, "image", shelf, silent)
    assert [(path / "blobs/one").read_text() for path in (first, second)] == ["first", "other"]


def test_a_build_that_left_nothing_has_failed(shelf, tmp_path):
    with pytest.raises(BuildError, match="left no output"):
        bazel._kept(tmp_path / "none", "image", shelf, silent)
    with pytest.raises(BuildError, match="left no log"):
        bazel._ran(tmp_path / "none")
    (tmp_path / "log").write_text('{"mnemonic": "PihStep"}')
    with pytest.raises(BuildError, match="left no log"):
        bazel._ran(tmp_path / "log")
    assert list((shelf.root / "steps").iterdir()) == []


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


@pytest.mark.parametrize(("name", "said"), [("plain", ""), ("with space", "set PIH_STORE"), ("wü", "set PIH_STORE")])
def test_a_failure_in_a_path_that_bazel_may_not_take_says_so(tmp_path, name, said):
    (tmp_path / name).mkdir()
    with pytest.raises(BuildError, match="paths containing") as caught:
        run(tmp_path / name, 'echo "ERROR: from paths containing" >&2; exit 1')
    assert said in caught.value.fix
    assert bool(said) == bool(caught.value.fix)
