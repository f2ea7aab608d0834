"""The line that `pih build` ends with gives a container all that the lock asks of its host."""

import attrs
import pytest

from pih import lock
from pih.cli._worker import not_run_yet
from pih.cli.build import run_line
from tests.support.program import ROOT

REFERENCE = "localhost/pih/x:0.1.0"


@pytest.fixture(scope="module")
def flagship():
    return lock.read(ROOT / "profiles/qwen3-4090d.lock.json")


def test_a_gpu_comes_by_its_familys_name(flagship):
    words = run_line(flagship, REFERENCE)
    assert " --device nvidia.com/gpu=all " in words
    assert " --env CUDA_VISIBLE_DEVICES " in words
    assert words.endswith(f":/pih/weights/weights.digests:ro {REFERENCE}")


def test_several_ranks_have_no_line_to_run_but_the_reason():
    assert not_run_yet(lock.read(ROOT / "profiles/qwen3-4090d-x2.lock.json")) == (
        "2 ranks, one for each device: running several is not there yet"
    )


@pytest.mark.parametrize("name", ["smollm2-cpu", "qwen3-4090d"])
def test_one_rank_is_run(name):
    assert not_run_yet(lock.read(ROOT / f"profiles/{name}.lock.json")) == ""


def test_a_cpu_deployment_needs_nothing_of_its_host():
    found = lock.read(ROOT / "profiles/smollm2-cpu.lock.json")
    line = "podman run --rm --read-only --cap-drop ALL -p {0}:{0} {1}"
    assert run_line(found, REFERENCE) == line.format(found.service.port, REFERENCE)


def test_nodes_and_files_that_are_named_are_given_and_patterns_left_to_the_host(flagship):
    asked = lock.Permissions("none", ("/dev/npu0", "/dev/npu*", "/tmp/x"), ("/etc/npu.conf",), ())
    plugin = attrs.evolve(flagship.plugins[0], permissions=asked)
    words = run_line(attrs.evolve(flagship, plugins=(plugin,)), REFERENCE)
    assert " --device /dev/npu0 --volume /etc/npu.conf:/etc/npu.conf:ro -v " in words
    assert "*" not in words
    assert "/tmp/x" not in words
