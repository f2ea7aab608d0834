"""The image of two cards: NCCL and nothing else beside that of one; its worker says that it does not run ranks yet."""

import json
import shutil
import subprocess
import sys
import tarfile
import zipfile

import pytest

from pih.bundle import layout as layouts
from pih.inspect.opened import opened
from pih_steps import fatbin
from tests.support.artifacts import artifact
from tests.support.program import pih

NCCL = "/pih/lib/nvidia/nccl/lib/libnccl.so.2"


def files(layout):
    return {file.path: file for file in opened(layout).contents.files}


def test_two_cards_add_nccl_and_nothing_else(image):
    one, two = files(image("qwen3-4090d")), files(image("qwen3-4090d-x2"))
    assert one.keys() - two.keys() == set()
    added = two.keys() - one.keys()
    assert {two[path].component for path in added} == {"nvidia-nccl-cu13", "transport/nccl"}
    assert {path for path in added if two[path].component == "nvidia-nccl-cu13" and "dist-info" not in path} == {NCCL}
    assert not [path for path in one if "nccl" in path.lower()]
    held = ("libcublas", "libcudart", "torch", "numpy", "libcuda.so")
    assert not [path for path in two if any(name in path for name in held)]
    assert sum(file.size for path, file in one.items()) < 45e6


def test_the_difference_is_one_sentence(image):
    told = json.loads(pih("diff", image("qwen3-4090d"), image("qwen3-4090d-x2"), "--json").stdout)["sentences"]
    assert len(told) == 1
    assert told[0].startswith("Ranks 1 → 2, one for each device: transport/nccl 0.1.0 and nvidia-nccl-cu13 ")


def test_why_it_is_there(image):
    text = pih("why", "nvidia-nccl-cu13", "--profile", "profiles/qwen3-4090d-x2.toml").stdout
    assert "device.count = 2" in text
    assert "transport/nccl" in text


def test_inspect_names_what_is_not_read_and_how_to_read_it(image):
    layout = image("qwen3-4090d-x2")
    *_, first, second = pih("inspect", layout).stdout.splitlines()
    assert first.startswith(f"libraries from elsewhere for the device: {NCCL} (")
    assert second == f"  how much of them it can use: pih inspect {layout} --libraries"
    assert "--libraries" not in pih("inspect", image("qwen3-4090d")).stdout


def test_components_have_no_guessed_sizes(image):
    layout = image("qwen3-4090d-x2")
    shown = pih("inspect", layout).stdout
    layers = json.loads(pih("inspect", layout, "--json").stdout)["layers"]
    total = next(line for line in shown.splitlines() if line.startswith("total "))
    assert total.endswith(f"MB, {sum(layer['compressed'] for layer in layers) / 1e6:.2f} MB as it is shipped")
    assert "compressed" not in shown.partition("component ")[2].splitlines()[0]


def test_inspect_shows_how_much_of_the_device_code_the_target_can_use(image):
    shown = json.loads(pih("inspect", image("qwen3-4090d-x2"), "--libraries", "--json").stdout)
    (nccl,), pack = shown["libraries"], shown["device_code"]
    assert nccl["path"] == NCCL
    assert 0 < nccl["usable"] < nccl["size"] // 5
    assert "unknown" not in nccl["processors"]
    assert "sm_89" not in nccl["processors"]  # its nearest is sm_80
    assert pack["proof"] == "the plan calls every entry, and every call has its entry"
    assert pack["code"] < 1e6


@pytest.mark.skipif(not shutil.which("readelf"), reason="needs readelf")
def test_every_byte_of_the_sections_that_hold_device_code_is_read(tmp_path):
    """The section table, which the wheel's library still has, says where they are: an independent count."""
    with zipfile.ZipFile(artifact("wheel", "nvidia-nccl-cu13")) as archive:
        library = archive.extract("nvidia/nccl/lib/libnccl.so.2", tmp_path)
    listed = subprocess.run(["readelf", "-SW", library], capture_output=True, text=True, check=True).stdout
    sections = [line.split("]", 1)[1].split() for line in listed.splitlines() if "fatbin " in line]
    assert {row[0] for row in sections} == {".nv_fatbin", "__nv_relfatbin"}
    with open(library, "rb") as file:  # noqa: PTH123 - one of 300 MB is read in pieces
        for row in sections:
            start, size = int(row[3], 16), int(row[4], 16)
            file.seek(start)
            found = list(fatbin.containers(file.read(size)))
            assert not any(one.unread for one in found)
            # every container's header is 16 bytes; those of entries are between 64 and 112 bytes
            payloads = sum(entry.size for one in found for entry in one.entries)
            entries = sum(len(one.entries) for one in found)
            left = size - payloads - 16 * len(found)
            assert 64 * entries <= left <= 112 * entries + 8 * len(found)


def test_the_worker_says_that_it_does_not_run_ranks_yet(image, tmp_path):
    layout = layouts.read(image("qwen3-4090d-x2"))
    for layer in layout.layers:
        with layouts.archive(layout, layer) as stream, tarfile.open(fileobj=stream, mode="r|") as tar:
            tar.extractall(tmp_path, filter="data")
    worker = [sys.executable, "-IB", tmp_path / "usr/bin/pih-worker"]
    done = subprocess.run(worker, capture_output=True, text=True, check=False)
    assert done.returncode == 9
    assert "the deployment has 2 ranks, one for each device, and this worker runs one" in done.stderr
