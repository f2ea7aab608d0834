"""The flagship's image, built on this machine without a GPU: how large, and what is not in it."""

import json
from pathlib import Path

import pytest

from pih.bundle import layout
from tests.support.program import pih

PROFILE = "profiles/qwen3-4090d.toml"


@pytest.fixture(scope="module")
def inspected():
    built = json.loads(pih("build", "--profile", PROFILE, "--json").stdout)
    return layout.read(Path(built["layout"])), json.loads(pih("inspect", built["layout"], "--json").stdout)


def test_it_is_small_and_so_is_its_device_code(inspected):
    _, found = inspected
    assert "weights" not in {layer["name"] for layer in found["layers"]}
    assert sum(layer["size"] for layer in found["layers"]) <= 45_000_000
    assert found["device_code"]["size"] < 1_000_000
    assert found["device_code"]["proof"] == "the plan calls every entry, and every call has its entry"
    assert {entry["frame"] for entry in found["device_code"]["entries"]} == {0}


def test_nothing_else_of_cuda_is_in_it(inspected):
    image, found = inspected
    names = [file["path"].rpartition("/")[2] for file in found["files"]]
    assert not [name for name in names if name.startswith(("libcu", "libnv", "libnccl", "numpy", "torch"))]
    assert not [row["name"] for row in found["components"] if row["name"].startswith(("nvidia", "numpy", "torch"))]
    assert "NVIDIA_DRIVER_CAPABILITIES=compute" in image.config["config"]["Env"]
