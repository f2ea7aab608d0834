"""Names of images in engines' stores, and the command lines that bring one out.

The engines here are scripts that write down what they are asked and give what a test has prepared: podman itself is
tested in tests/integration/spine/test_inspect.py; Docker's engine does not run everywhere, so that its part is
tested only to this depth.
"""

import gzip
import json
import os
import sys

import pytest

from pih import lock as locks
from pih.build.progress import silent
from pih.build.store import open_store
from pih.bundle import stored
from pih.inspect.opened import opened, opened_image
from pih_runtime.errors import FetchError, PihError, SealError, UsageError
from tests.support.shipped import LOCK, PROFILE, listing
from tests.unit.bundle import layouts

TEXT = locks.path_for(PROFILE).read_bytes()
ID = "1" * 64
_CLIENT = """#!{python}
import json, shutil, sys
from pathlib import Path
here = Path({here!r})
with (here / "asked").open("a") as log:
    log.write(json.dumps([Path(sys.argv[0]).name, *sys.argv[1:]]) + "\\n")
answers = json.loads((here / "answers.json").read_text())
if "copy" in sys.argv:
    shutil.copytree(here / "layout", sys.argv[-1].removeprefix("oci:"))
elif sys.argv[1:3] in (["image", "inspect"], ["inspect", "--raw"]):
    answer = answers[Path(sys.argv[0]).name]
    if answer is None:
        sys.exit("no such image")
    sys.stdout.write(answer)
elif sys.argv[1:4] == ["image", "save", "--output"]:
    Path(sys.argv[4]).write_text("saved")
elif sys.argv[1:4] == ["inspect", "--config", "--raw"]:
    sys.stdout.write(answers["config"])
else:
    sys.exit("unknown")
"""


@pytest.fixture
def layout(tmp_path):
    """As skopeo writes one: layers not compressed, whatever type the manifest still gives them."""
    app = layouts.tar([("pih", None), ("pih/lock.json", TEXT)])
    deployment = layouts.tar([("pih", None), ("pih/bundle.json", listing())])
    titles = {"history": [{"comment": "app"}, {"comment": "deployment"}]}

    def named(part, value):
        if part == "config":
            return value | titles
        return (
            value | {"layers": [{**layer, "mediaType": layouts.GZIP} for layer in value["layers"]]}
            if part == "manifest"
            else value
        )

    return layouts.write(tmp_path / "layout", [app, deployment], change=named, types=[layouts.TAR] * 2)


@pytest.fixture
def world(tmp_path, layout):
    """(ask, answers, asked): look up an image with the scripts as clients; what they answer; what they were asked."""
    clients = tmp_path / "bin"
    clients.mkdir()
    for name in ("podman", "docker", "skopeo"):
        script = clients / name
        script.write_text(_CLIENT.format(python=sys.executable, here=str(tmp_path)))
        script.chmod(0o755)
    blobs = [blob.read_bytes() for blob in (layout / "blobs/sha256").iterdir()]
    manifest = next(text for text in blobs if text.startswith(b'{"schemaVersion'))
    config = next(text for text in blobs if text.startswith(b'{"os'))
    answers = {"podman": f"{ID} 1000\n", "docker": f"sha256:{ID} 1000\n"}
    answers |= {"skopeo": manifest.decode(), "config": config.decode()}
    store = open_store(tmp_path / "store")

    def ask(name):
        (tmp_path / "answers.json").write_text(json.dumps(answers))
        image = stored.named(name)
        environment = {"PATH": f"{clients}:{os.environ['PATH']}"}
        return opened_image(image, store, environment, silent)

    def asked():
        log = tmp_path / "asked"
        lines = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
        log.unlink(missing_ok=True)
        return lines

    return ask, answers, asked


@pytest.mark.parametrize("text", ["image.tar", "./podman:x", "/x:y", "C:\\x", "oci:x", "dir", "podman"])
def test_a_path_is_no_name_of_an_image(text):
    assert stored.named(text) is None


@pytest.mark.parametrize(
    "text", ["podman:", "docker:--help", "podman: x", "docker-daemon:a b", "containers-storage:-x"]
)
def test_what_no_image_is_called(text):
    with pytest.raises(UsageError, match="is no name of an image"):
        stored.named(text)


def copying(source):
    return ["skopeo", "copy", "--quiet", "--dest-oci-accept-uncompressed-layers", source, "oci:layout"]


def test_podman_is_asked_for_the_id_and_skopeo_for_the_rest(world, layout):
    ask, _, asked = world
    held = ask("podman:toy:1")
    by_id = f"containers-storage:@{ID}"
    identify = [
        ["podman", "image", "inspect", "--format", "{{.Id}} {{.Size}}", "toy:1"],
        ["skopeo", "inspect", "--raw", by_id],
    ]
    assert asked() == [*identify, copying(by_id)]
    assert held.lock == LOCK
    assert held.contents.layers == opened_layers(layout)
    assert ask("podman:toy:1") == held
    assert asked() == identify  # nothing is copied a second time


def opened_layers(layout):
    """What the layout has, its types put right."""
    index = json.loads((layout / "index.json").read_text())
    manifest = json.loads((layout / "blobs/sha256" / index["manifests"][0]["digest"][7:]).read_text())
    config = json.loads((layout / "blobs/sha256" / manifest["config"]["digest"][7:]).read_text())
    from pih.inspect.bundle import Layer

    return tuple(
        Layer(title["comment"], layer["digest"], 1 if title["comment"] == "app" else 0, layer["size"], diff)
        for title, layer, diff in zip(config["history"], manifest["layers"], config["rootfs"]["diff_ids"], strict=True)
    )


def test_docker_keeps_no_manifest(world):
    ask, _, asked = world
    for name in ("docker:toy", "docker-daemon:toy"):
        held = ask(name)
        assert held.lock == LOCK
        assert held.contents.digest == ""
        assert {(layer.digest, layer.compressed) for layer in held.contents.layers} == {("", 0)}
        assert held.contents.content
        assert "docker's store" in held.contents.form
    identify = ["docker", "image", "inspect", "--format", "{{.Id}} {{.Size}}", "toy"]
    save = ["docker", "image", "save", "--output", "image.tar", ID]  # by docker's client, which knows its engine's host
    source = "docker-archive:image.tar"
    configuration = ["skopeo", "inspect", "--config", "--raw", source]
    assert asked() == [identify, save, copying(source), configuration, identify]


DOCKERS = "application/vnd.docker.distribution.manifest.v2+json"


def test_the_configuration_is_the_stores_own(world):
    """Of an image with docker's manifest, as one of a sealed layout has in podman's store, skopeo writes another."""
    ask, answers, _ = world
    answers["config"] = json.dumps(json.loads(answers["config"]), indent=4)
    config = {"digest": layouts.digest(answers["config"].encode()), "size": len(answers["config"])}
    answers["skopeo"] = json.dumps({"schemaVersion": 2, "mediaType": DOCKERS, "config": config})
    held = ask("podman:toy")
    assert held.contents.config == config["digest"]
    assert held.contents.digest == ""
    assert ask("podman:toy") == held
    answers["config"] += " "
    answers["skopeo"] = answers["skopeo"].replace('"size"', '"other"')
    with pytest.raises(SealError, match="the store gives configuration"):
        ask("podman:toy")


def test_skopeos_own_name_needs_no_engine(world):
    ask, _, asked = world
    ask("containers-storage:[vfs@/graph+/run]toy:1")
    source = "containers-storage:[vfs@/graph+/run]toy:1"
    assert asked() == [["skopeo", "inspect", "--raw", source], copying(source)]


def test_an_image_that_is_not_there(world):
    ask, answers, _ = world
    answers["podman"] = None
    with pytest.raises(FetchError, match=r"(?s)no such image.*to fix: name an image as its engine lists it"):
        ask("podman:toy")


@pytest.mark.parametrize("answer", ["", "x 1", f"{ID}", f"{ID} -1", f"{ID} 1 2", f"../{ID} 1"])
def test_an_answer_that_is_no_id(world, answer):
    ask, answers, _ = world
    answers["docker"] = answer
    with pytest.raises(FetchError, match="gives no id"):
        ask("docker:toy")


def test_a_client_that_is_not_installed(layout, tmp_path):
    image = stored.named("podman:toy")
    with pytest.raises(FetchError, match="podman is not installed"):
        stored.kept(image, open_store(tmp_path / "store"), {"PATH": str(tmp_path)}, silent)


def test_a_layer_that_is_not_what_the_configuration_names(world, layout, tmp_path):
    ask, _, _ = world
    for blob in (layout / "blobs/sha256").iterdir():
        if b"bundle.json" in blob.read_bytes():
            data = bytearray(blob.read_bytes())
            data[-1] ^= 1
            blob.write_bytes(bytes(data))
    for name in ("podman:toy", "docker:toy"):
        with pytest.raises(SealError, match="has other bytes than it should have"):
            ask(name)
    assert list((tmp_path / "store/images").iterdir()) == []
    assert list((tmp_path / "store/tmp").iterdir()) == []


def test_another_image_than_the_one_asked_for(world):
    ask, answers, _ = world
    manifest = json.loads(answers["skopeo"])
    manifest["config"]["digest"] = f"sha256:{ID}"
    answers["skopeo"] = json.dumps(manifest)
    with pytest.raises(SealError, match="the store gives configuration"):
        ask("podman:toy")


def test_an_image_that_pih_did_not_make(world, layout, tmp_path):
    ask, answers, _ = world
    other = layouts.write(tmp_path / "other", [layouts.tar([("etc", None)])], types=[layouts.TAR])
    layout.rename(tmp_path / "gone")
    other.rename(layout)
    answers["skopeo"] = "{}"
    answers["config"] = next(
        text.decode() for blob in (layout / "blobs/sha256").iterdir() if (text := blob.read_bytes()).startswith(b'{"os')
    )
    with pytest.raises(SealError, match="it was not made by pih"):
        ask("podman:toy")


HOSTILE = {
    "no lock of pih": (b"{}", listing(b"{}")),
    "another lock": (TEXT, listing(b"{}")),
    "no list of files": (TEXT, b"[]"),
    "a list that is no JSON": (TEXT, b"{"),
    "a list with a wrong line": (TEXT, listing(files=[{"path": "etc"}])),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_what_is_wrong_is_said_of_the_image_as_the_user_named_it(world, layout, tmp_path, case):
    ask, answers, _ = world
    lock, files = HOSTILE[case]
    layout.rename(tmp_path / "gone")
    parts = [[("pih", None), ("pih/lock.json", lock)], [("pih", None), ("pih/bundle.json", files)]]
    layouts.write(layout, [layouts.tar(part) for part in parts], types=[layouts.TAR] * 2)
    texts = [blob.read_bytes() for blob in (layout / "blobs/sha256").iterdir()]
    answers["config"] = next(text for text in texts if text.startswith(b'{"os')).decode()
    answers["skopeo"] = next(text for text in texts if text.startswith(b'{"schemaVersion')).decode()
    for _ in range(2):  # also of what was read before
        with pytest.raises(PihError) as failed:
            ask("podman:toy")
        assert failed.value.where.startswith("podman:toy"), failed.value
        assert str(tmp_path) not in str(failed.value)


def test_the_same_content_has_the_same_name_whatever_its_compression(layout, tmp_path):
    app = layouts.tar([("pih", None), ("pih/lock.json", TEXT)])
    deployment = layouts.tar([("pih", None), ("pih/bundle.json", listing())])
    titles = {"history": [{"comment": "app"}, {"comment": "deployment"}]}
    found = []
    for name, types in (("a", [layouts.GZIP] * 2), ("b", [layouts.TAR] * 2)):
        change = lambda part, value: value | titles if part == "config" else value  # noqa: E731 - two words of it
        found.append(opened(layouts.write(tmp_path / name, [app, deployment], types=types, change=change)).contents)
    assert found[0].digest != found[1].digest
    assert (
        found[0].content
        == found[1].content
        == layouts.digest(f"{layouts.digest(app)} {layouts.digest(deployment)}".encode())
    )
    assert gzip.compress(app) != app
