"""Step `image`: an OCI layout that also is a docker archive, and the list of its files."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile
import tracemalloc

import pytest

from pih_runtime.errors import BuildError
from pih_steps import image, layer, tar

LOCK = {
    "pih": "0.1.0",
    "service": {"port": 9000},
    "plugins": [
        {"id": "model/llama", "permissions": {"devices": []}, "provides": {"model.decoder": "1.0"}},
        {"id": "model/text", "permissions": {"devices": []}, "provides": {"model.text": "1.0"}},
        {"id": "kernels/cpu", "permissions": {"devices": []}, "provides": {"kernels.pack": "1.0"}},
    ],
}


@pytest.fixture
def inputs(tmp_path):
    lock = json.dumps(LOCK).encode()
    contents = {"base": "etc/passwd", "wheels": "pih/lib/server.pyc", "app": "pih/lock.json"}
    steps = {}
    for step, path in contents.items():
        steps[step] = tmp_path / step
        data = lock if step == "app" else step.encode()
        layer.write(steps[step], [layer.File(tar.Entry(path, data), step, f"reason of {step}")])
    (tmp_path / "lock.json").write_bytes(lock)
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "tokenizer.json").write_text("{}")
    for step in ("plan", "kernels", "weights", "digests"):
        (tmp_path / step).write_text(step)
    steps |= {step: tmp_path / step for step in ("plan", "model", "kernels", "weights", "digests")}
    return {
        "params": {"name": "tiny", "arch": "x86_64"},
        "trees": {"lock": tmp_path / "lock.json"},
        "steps": steps,
    }


def _blob(layout, descriptor):
    data = (layout / "blobs" / descriptor["digest"].replace(":", "/")).read_bytes()
    assert "sha256:" + hashlib.sha256(data).hexdigest() == descriptor["digest"]
    assert len(data) == descriptor["size"]
    return data


def _open(layout):
    """(manifest, config, layers as lists of (path, content))."""
    entry = json.loads((layout / "index.json").read_bytes())["manifests"][0]
    manifest = json.loads(_blob(layout, entry))
    config = json.loads(_blob(layout, manifest["config"]))
    layers = []
    for descriptor, diff in zip(manifest["layers"], config["rootfs"]["diff_ids"], strict=True):
        data = _blob(layout, descriptor)
        raw = gzip.decompress(data) if descriptor["mediaType"].endswith("+gzip") else data
        assert "sha256:" + hashlib.sha256(raw).hexdigest() == diff
        with tarfile.open(fileobj=io.BytesIO(raw)) as archive:
            layers.append({m.name: archive.extractfile(m).read() for m in archive if m.isfile()})
    return manifest, config, layers


def test_layers_lie_by_how_seldom_they_change_and_weights_are_not_compressed(inputs, make_spec, tmp_path):
    image.run(make_spec(**inputs))
    manifest, _, layers = _open(tmp_path / "out")
    assert [sorted(files) for files in layers] == [
        ["etc/passwd"],
        ["pih/lib/server.pyc"],
        ["pih/lock.json"],
        ["pih/bundle.json", "pih/kernels/pack.so", "pih/model/tokenizer.json", "pih/plan.json", "pih/weights.digests"],
        ["pih/weights/weights.safetensors"],
    ]
    assert [descriptor["mediaType"].rpartition(".")[2] for descriptor in manifest["layers"]] == ["tar+gzip"] * 4 + [
        "tar"
    ]


@pytest.mark.parametrize("path", ["/etc", "/etc/passwd", "/etc/pass*", "/*"])
def test_a_plugin_cannot_take_the_place_of_the_images_files(inputs, make_spec, path):
    lock = {**LOCK, "plugins": [dict(item) for item in LOCK["plugins"]]}
    lock["plugins"][0]["permissions"] = {"devices": [], "paths": ["/etc/npu.conf", "/pih/weights", path]}
    inputs["trees"]["lock"].write_text(json.dumps(lock))
    with pytest.raises(BuildError) as caught:
        image.run(make_spec(**inputs))
    assert f"model/llama asks for {path} of the host, where the image has /etc/passwd of its own" in str(caught.value)


def test_config_is_that_of_a_confined_worker(inputs, make_spec, tmp_path):
    image.run(make_spec(**inputs))
    _, config, _ = _open(tmp_path / "out")
    assert config["created"] == "1970-01-01T00:00:00Z"
    assert (config["os"], config["architecture"]) == ("linux", "amd64")
    assert config["config"]["Entrypoint"] == ["/usr/bin/pih-worker"]
    assert config["config"]["User"] == "65532:65532"
    assert config["config"]["ExposedPorts"] == {"9000/tcp": {}}
    assert "PYTHONUTF8=1" in config["config"]["Env"]


def test_bundle_lists_every_file_but_itself(inputs, make_spec, tmp_path):
    image.run(make_spec(**inputs))
    _, _, layers = _open(tmp_path / "out")
    bundle = json.loads(layers[3]["pih/bundle.json"])
    lock = "sha256:" + hashlib.sha256(layers[2]["pih/lock.json"]).hexdigest()
    assert (bundle["schema"], bundle["name"], bundle["lock"]) == (1, "tiny", lock)
    contents = {f"/{path}": data for files in layers for path, data in files.items()}
    del contents["/pih/bundle.json"]
    assert {line["path"]: line["digest"] for line in bundle["files"]} == {
        path: "sha256:" + hashlib.sha256(data).hexdigest() for path, data in contents.items()
    }
    assert {line["path"].rpartition("/")[2]: line["component"] for line in bundle["files"]} == {
        "passwd": "base",
        "server.pyc": "wheels",
        "lock.json": "app",
        "pack.so": "kernels/cpu",
        "plan.json": "model/llama",
        "tokenizer.json": "model",
        "weights.digests": "weights",
        "weights.safetensors": "weights",
    }


def test_weights_delivered_apart_and_no_kernel_pack_leave_their_layers_out(inputs, make_spec, tmp_path):
    del inputs["steps"]["weights"], inputs["steps"]["digests"], inputs["steps"]["kernels"]
    image.run(make_spec(**inputs))
    _, _, layers = _open(tmp_path / "out")
    assert sorted(layers[-1]) == ["pih/bundle.json", "pih/model/tokenizer.json", "pih/plan.json"]
    assert b"weights" not in layers[-1]["pih/bundle.json"]


def test_no_image_has_weights_without_their_digests(inputs, make_spec):
    del inputs["steps"]["digests"]
    with pytest.raises(BuildError, match="no step 'digests'"):
        image.run(make_spec(**inputs))


def test_the_layout_is_a_docker_archive_too(inputs, make_spec, tmp_path):
    image.run(make_spec(**inputs))
    manifest, _, _ = _open(tmp_path / "out")
    (archive,) = json.loads((tmp_path / "out" / "manifest.json").read_bytes())
    assert archive["RepoTags"] == ["localhost/pih/tiny:0.1.0"]
    assert archive["Config"] == "blobs/" + manifest["config"]["digest"].replace(":", "/")
    assert archive["Layers"] == ["blobs/" + item["digest"].replace(":", "/") for item in manifest["layers"]]
    assert json.loads((tmp_path / "out" / "oci-layout").read_bytes()) == {"imageLayoutVersion": "1.0.0"}
    present = {
        path.relative_to(tmp_path / "out").as_posix() for path in (tmp_path / "out").rglob("*") if path.is_file()
    }
    index = json.loads((tmp_path / "out" / "index.json").read_bytes())["manifests"][0]
    blobs = {archive["Config"], *archive["Layers"], "blobs/" + index["digest"].replace(":", "/")}
    assert present == blobs | {"oci-layout", "index.json", "manifest.json"}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda inputs: inputs["params"].update(name="Not a name"), "cannot be named 'Not a name'"),
        (lambda inputs: inputs["params"].update(arch="riscv64"), "no image for architecture 'riscv64'"),
        (lambda inputs: inputs["steps"].pop("base"), "no step 'base'"),
        (lambda inputs: inputs["trees"].clear(), "no tree 'lock'"),
    ],
)
def test_what_cannot_become_an_image_is_said(inputs, make_spec, change, words):
    change(inputs)
    with pytest.raises(BuildError, match=words):
        image.run(make_spec(**inputs))


def test_two_layers_with_one_file_are_refused(inputs, make_spec, tmp_path):
    layer.write(tmp_path / "wheels", [layer.File(tar.Entry("etc/passwd"), "wheels", "none")])
    with pytest.raises(BuildError, match="two layers write /etc/passwd"):
        image.run(make_spec(**inputs))


def test_a_damaged_layer_is_named(inputs, make_spec, tmp_path):
    path = tmp_path / "base" / "layer.tar.gz"
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(BuildError, match=r"base/layer\.tar\.gz: not a compressed layer"):
        image.run(make_spec(**inputs))


def test_weights_are_never_whole_in_memory(inputs, make_spec, tmp_path):
    size = 64 << 20
    with (tmp_path / "weights").open("wb") as stream:
        stream.truncate(size)
    tracemalloc.start()
    image.run(make_spec(**inputs))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < size / 4
