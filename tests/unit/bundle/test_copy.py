"""A copy of a layout takes the place of what pih can make again, and of nothing else."""

import json
import shutil

import pytest
from click.testing import CliRunner

from pih.build.store import FOLDERS
from pih.bundle import modelpack
from pih.bundle.copy import copied
from pih.cli import build, export, inspect, mirror, seal, weights
from pih.seal import attach
from pih.trust import keys
from pih_runtime.errors import UsageError
from tests.support import bundles
from tests.unit.bundle import layouts


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("made")
    keys.generate(folder / "a.pem")
    keys.generate(folder / "b.pem")
    bundles.write(folder / "work")
    return folder


@pytest.fixture
def layout(made, tmp_path):
    return shutil.copytree(made / "work/image", tmp_path / "layout")


def private(made, *names):
    return [keys.load_private(made / f"{name}.pem") for name in names]


def content(folder):
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def refused(words, act):
    with pytest.raises(UsageError, match=words) as caught:
        act()
    assert caught.value.fix


def test_a_copy_replaces_a_copy(layout, tmp_path):
    for _ in range(2):
        copied(layout, tmp_path / "out")
    assert content(tmp_path / "out") == content(layout)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["layout", "out"]


def test_signatures_are_not_thrown_away(made, layout, tmp_path):
    out = tmp_path / "out"
    attach.seal(layout, out, private(made, "a"))
    before = content(out)
    refused("signatures cannot be made again", lambda: copied(layout, out))
    refused(f"{keys.fingerprint(keys.public_of(*private(made, 'a')))} signed", lambda: attach.seal(layout, out, []))
    refused("signed", lambda: attach.seal(layout, out, private(made, "b")))
    assert content(out) == before
    attach.seal(layout, out, private(made, "a"))
    assert content(out) == before
    attach.seal(out, out, private(made, "b"))  # what is sealed keeps its signatures
    assert len(attach.seal(layout, out, private(made, "a", "b")).signers) == 2
    refused("signed", lambda: attach.seal(layout, out, private(made, "a")))


def test_what_another_tool_attached_stays(made, layout, tmp_path):
    out = tmp_path / "out"
    attach.seal(layout, out, private(made, "a"))
    index = json.loads((out / "index.json").read_bytes())
    index["manifests"].pop()
    (out / "index.json").write_text(json.dumps(index))
    refused("unknown key", lambda: attach.seal(layout, out, private(made, "a")))


def of_docker(out):
    """An image that is none of pih's."""
    shutil.rmtree(out)
    layouts.write(out, [layouts.tar([("etc/passwd", b"x")])], settings={"Entrypoint": ["/bin/sh"]})


def a_blob_more(out):
    (out / "blobs/sha256" / ("0" * 64)).write_text("precious")


def another_kind_of_blob(out):
    (out / "blobs/sha512").mkdir()


def two_images(out):
    index = json.loads((out / "index.json").read_bytes())
    index["manifests"] *= 2
    (out / "index.json").write_text(json.dumps(index))


def a_link(out):
    out.rename(out.with_name("real"))
    out.symlink_to("real")


@pytest.mark.parametrize("change", [of_docker, a_blob_more, another_kind_of_blob, two_images, a_link])
def test_what_pih_did_not_make_stays(layout, tmp_path, change):
    out = tmp_path / "out"
    shutil.copytree(layout, out)
    change(out)
    before = content(out)
    refused("is there already", lambda: copied(layout, out))
    assert content(out) == before


def test_no_copy_is_made_inside_of_its_source(layout):
    refused("inside of the bundle", lambda: copied(layout, layout / "copy"))
    assert not (layout / "copy").exists()


def test_an_artifact_with_weights_replaces_its_like(layout, tmp_path):
    for name in ("weights", "table"):
        (tmp_path / name).write_text(name)
    apart = tmp_path / "apart"
    modelpack.write(apart, "x", "1", "MIT", ("w.safetensors", tmp_path / "weights"), ("w.digests", tmp_path / "table"))
    for _ in range(2):
        copied(apart, tmp_path / "out")
    assert content(tmp_path / "out") == content(apart)
    a_blob_more(tmp_path / "out")
    refused("cannot make again", lambda: copied(apart, tmp_path / "out"))


COMMANDS = {
    "build": (build.command, ["--profile", "x", "--output"]),
    "seal": (seal.command, ["x", "-o"]),
    "export": (export.command, ["x", "-o"]),
    "inspect": (inspect.command, ["x", "--html"]),
    "mirror": (mirror.command, ["export", "--profile", "x", "-o"]),
    "weights": (weights.command, ["pack", "--profile", "x", "--output"]),
    "artifact": (weights.command, ["pack", "--profile", "x", "--oci"]),
}


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.parametrize("folder", FOLDERS)
def test_no_command_writes_into_the_store(tmp_path, monkeypatch, name, folder):
    monkeypatch.setenv("PIH_STORE", str(tmp_path / "store"))
    (tmp_path / "link").symlink_to(tmp_path / "store")
    command, arguments = COMMANDS[name]
    for place in (tmp_path / "store" / folder / "x", tmp_path / "link" / folder):
        with pytest.raises(UsageError, match="is in the store"):
            CliRunner().invoke(command, [*arguments, str(place)], standalone_mode=False, catch_exceptions=False)
    assert [path.name for path in tmp_path.iterdir()] == ["link"]
