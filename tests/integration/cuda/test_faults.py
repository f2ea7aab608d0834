"""What goes wrong between driver and worker: told in its words, exit code 9, and all that was taken is given back."""

import re
import shutil

import openai
import pytest

from tests.support.locks import sealed_text
from tests.support.program import ROOT
from tests.support.waiting import PATIENCE

NO_DEVICE = "no device has sm_89 and 573 MiB free, as this bundle needs"
RELEASED = "simgpu: context released, 0 things not given back\n"
LOST = {700: "CUDA_ERROR_ILLEGAL_ADDRESS", 719: "CUDA_ERROR_LAUNCH_FAILED", 214: "CUDA_ERROR_ECC_UNCORRECTABLE"}
# What a start calls, in this order, those of a device after those that find one; then what a step and the end call.
FINDING = (
    "cuInit", "cuDriverGetVersion", "cuDeviceGetCount", "cuDeviceGet", "cuDeviceGetName", "cuDeviceGetAttribute",
    "cuDevicePrimaryCtxRetain",
)  # fmt: skip
TAKING = (
    "cuCtxSetCurrent", "cuMemGetInfo_v2", "cuStreamCreate", "cuModuleLoadData", "cuMemAlloc_v2", "cuMemsetD8_v2",
    "cuMemcpyHtoD_v2", "cuModuleGetFunction", "cuMemHostAlloc", "cuEventCreate", "cuCtxSynchronize",
)  # fmt: skip
STEPPING = (
    "cuMemcpyHtoDAsync_v2", "cuLaunchKernel", "cuMemcpyDtoHAsync_v2", "cuEventRecord", "cuEventSynchronize",
    "cuMemcpyDtoH_v2",
)  # fmt: skip
GIVING_BACK = (
    "cuStreamSynchronize", "cuEventDestroy_v2", "cuMemFreeHost", "cuMemFree_v2", "cuModuleUnload", "cuStreamDestroy_v2",
    "cuDevicePrimaryCtxRelease_v2",
)  # fmt: skip


@pytest.fixture
def changed(root, tmp_path):
    """A copy of the bundle's /pih, to change."""
    return shutil.copytree(root / "pih", tmp_path / "pih", symlinks=True)


def ended(worker):
    """A worker that must end by itself: what it said."""
    assert worker.process.wait(PATIENCE) == 9
    _, text = worker.end()
    assert "Traceback" not in text
    assert "ready in" not in text
    return text


@pytest.mark.parametrize(
    ("settings", "words", "fix"),
    [
        (
            {"driver": 12040},
            "the driver serves CUDA 12.4, the kernels need 13.0",
            "install a newer driver on the host",
        ),
        (
            {"devices": ""},
            "the CUDA driver: cuInit: CUDA_ERROR_NO_DEVICE (no CUDA-capable device is detected)",
            "give the container the GPU: ",
        ),
        (
            {"devices": "sm_90:80000000000,sm_100:180000000000"},
            f"{NO_DEVICE}: simgpu 0 (sm_90) is sm_90; simgpu 1 (sm_100) is sm_100",
            "run it where such a device is free, or lock the profile for the one that is here",
        ),
        (
            {"devices": "sm_86:24000000000,sm_80:80000000000"},
            f"{NO_DEVICE}: simgpu 0 (sm_86) is sm_86; simgpu 1 (sm_80) is sm_80",
            "run it where such a device is free, or lock the profile for the one that is here",
        ),
        (
            {"devices": "sm_89:400000000,sm_90:80000000000"},
            f"{NO_DEVICE}: simgpu 0 (sm_89) has 381 MiB free of 381 MiB; simgpu 1 (sm_90) is sm_90",
            "run it where such a device is free",
        ),
        (
            {"devices": "sm_89:24000000000:23600000000"},
            f"{NO_DEVICE}: simgpu 0 (sm_89) has 381 MiB free of 22888 MiB",
            "run it where such a device is free",
        ),
        (
            {"fail": "cuMemAlloc_v2:2=2"},
            "the CUDA driver: cache kv: 524288 bytes refused: cuMemAlloc_v2: CUDA_ERROR_OUT_OF_MEMORY (out of memory)",
            "end what else uses the device, or lock the profile with smaller limits",
        ),
    ],
    ids=[
        "driver too old",
        "no device",
        "wrong SM",
        "SM of another minor",
        "too little memory",
        "memory of others",
        "memory refused",
    ],
)
def test_a_worker_that_cannot_start_says_why_and_what_to_do(launch, settings, words, fix, tmp_path):
    text = ended(launch(**settings))
    assert f"pih-worker: error: {words}\n" in text
    assert f"  to fix: {fix}" in text
    opened = "fail" in settings or "has 381 MiB free" in words
    assert not opened or (tmp_path / "simgpu.log").read_text() == RELEASED


@pytest.mark.parametrize("fault", ["cuDevicePrimaryCtxRetain:1=46", "cuMemGetInfo_v2:1=2"])
def test_the_second_device_is_taken_where_the_first_is_not_to_be_had(launch, fault):
    worker = launch(devices="sm_89:24000000000,sm_89:24000000000", fail=fault)
    assert "simgpu 1 (sm_89)" in worker.wait_for("backend/cuda:")


def test_a_host_without_a_driver(launch, tmp_path):
    text = ended(launch(library=tmp_path))
    assert "error: no NVIDIA driver: libcuda.so.1: cannot open shared object file: No such file or directory\n" in text
    assert "to fix: install it, and give the container the GPU: " in text


def test_a_library_of_its_name_that_is_no_driver(launch, root, tmp_path):
    shutil.copy(next((root / "usr/lib").rglob("libz.so.1")), tmp_path / "libcuda.so.1")
    text = ended(launch(library=tmp_path))
    assert re.search(r"error: libcuda.so.1 is too old, or not NVIDIA's driver: .*: undefined symbol: cuInit\n", text)
    assert "to fix: install a newer driver on the host\n" in text


def test_the_right_device_is_taken_whichever_come_first(launch, tmp_path):
    worker = launch(devices="sm_90:80000000000,sm_86:24000000000,sm_89:400000000,sm_89:24000000000")
    assert "simgpu 3 (sm_89)" in worker.wait_for("backend/cuda:")
    assert worker.end()[0] == 0
    assert (tmp_path / "simgpu.log").read_text() == 2 * RELEASED  # the one that is too small, at once


def test_a_lock_of_another_minor_takes_no_device_of_this_one(starts, changed):
    """Though a driver would run its cubin: the reverse of an sm_86 that is offered to a lock for sm_89."""
    for name in ("lock.json", "kernels/pack.json"):
        text = (changed / name).read_text().replace('"sm": "sm_89"', '"sm": "sm_86"')
        (changed / name).unlink()
        (changed / name).write_text(sealed_text(text) if name == "lock.json" else text)
    ((outcome, log),) = starts({}, bundle=changed)
    assert "no device has sm_86 and 573 MiB free, as this bundle needs: simgpu 0 (sm_89) is sm_89" in outcome["error"]
    assert (outcome["code"], log) == (9, "")


def test_every_function_of_the_driver_has_a_fault_here():
    text = (ROOT / "plugins/backend/cuda/pih_backend_cuda/driver.py").read_text()
    named = re.findall(r'^    "(cu\w+)": \(', text, re.MULTILINE)
    assert len(named) > 20
    assert sorted(named) == sorted((*FINDING, *TAKING, *STEPPING, *GIVING_BACK))


@pytest.mark.parametrize("code", [999, *LOST])
def test_an_error_of_any_function_at_its_first_call_ends_the_start_and_gives_all_back(starts, code):
    tried = starts(*({"fail": f"{function}:1={code}"} for function in (*FINDING, *TAKING)))
    for function, (outcome, log) in zip((*FINDING, *TAKING), tried, strict=True):
        first = outcome["error"].splitlines()[0]
        assert f"{function}: {LOST.get(code, 'CUDA error 999')}" in first, function
        assert outcome["code"] == 9
        assert outcome["stopping"] == []
        assert log == (RELEASED if function in TAKING else ""), function
        if code == 999:
            assert "while releasing" not in outcome["error"], function
        elif function == "cuEventCreate":  # with everything taken that comes before: each release says so, once
            said = [line.split(": ")[1] for line in outcome["error"].splitlines() if "while releasing: " in line]
            assert said == ["cuMemFreeHost", "cuMemFree_v2", "cuModuleUnload", "cuStreamDestroy_v2"]


def test_an_error_of_any_function_at_the_end_is_told_and_keeps_nothing_else(starts):
    tried = starts(*({"fail": f"{function}:1=999"} for function in GIVING_BACK))
    for function, (outcome, log) in zip(GIVING_BACK, tried, strict=True):
        assert outcome["error"] == ""
        (problem,) = outcome["stopping"]
        assert problem.startswith("plugin backend/cuda failed to stop: the CUDA driver: ")
        assert f"{function}: CUDA error 999" in problem
        kept = {"cuStreamSynchronize": 0, "cuDevicePrimaryCtxRelease_v2": None}.get(function, 1)
        expected = "" if kept is None else f"simgpu: context released, {kept} things not given back\n"
        assert log == expected, function


@pytest.mark.parametrize("function", ["cuMemAlloc_v2", "cuMemHostAlloc"])
def test_every_allocation_may_be_refused(starts, function):
    tried = starts(*({"fail": f"{function}:{number}=2"} for number in range(1, 12)))
    refused = [(outcome, log) for outcome, log in tried if outcome["error"]]
    assert len(refused) >= 4
    assert [bool(outcome["error"]) for outcome, _ in tried] == [number < len(refused) for number in range(len(tried))]
    for outcome, log in refused:
        assert "bytes refused: " in outcome["error"]
        assert f"{function}: CUDA_ERROR_OUT_OF_MEMORY" in outcome["error"]
        assert "to fix: end what else uses the device" in outcome["error"]
        assert (outcome["code"], log) == (9, RELEASED)
    assert all(log == RELEASED for _, log in tried)


def test_the_first_cause_is_told_before_an_error_of_giving_back(starts):
    ((outcome, log),) = starts({"fail": "cuMemAlloc_v2:4=2,cuMemFree_v2:1=1"})
    lines = outcome["error"].splitlines()
    assert "cuMemAlloc_v2: CUDA_ERROR_OUT_OF_MEMORY" in lines[0]
    assert lines[1] == "  while releasing: cuMemFree_v2: CUDA_ERROR_INVALID_VALUE (invalid argument)"
    assert log == "simgpu: context released, 1 things not given back\n"


def test_a_cubin_of_another_processor_is_refused_by_the_driver(starts, changed):
    path = changed / "kernels/pack.cubin"
    data = bytearray(path.read_bytes())
    assert data[49] == 89  # of e_flags
    data[49] = 90
    path.unlink()
    path.write_bytes(data)
    ((outcome, log),) = starts({}, bundle=changed)
    assert "cuModuleLoadData: CUDA_ERROR_NO_BINARY_FOR_GPU" in outcome["error"]
    assert "to fix: lock the profile for this device's compute capability: device.sm" in outcome["error"]
    assert (outcome["code"], log) == (9, RELEASED)


@pytest.mark.parametrize(
    ("place", "before", "after", "words"),
    [
        ("kernels/pack.json", '"sm": "sm_89"', '"sm": "sm_90"', "the kernel pack is for sm_90, the lock says sm_89"),
        ("kernels/pack.json", '"sm": "sm_89"', '"sm": "sm_86"', "the kernel pack is for sm_86, the lock says sm_89"),
        ("kernels/pack.json", '"abi": 1', '"abi": 7', "kernel pack ABI 7, this backend has 1"),
        ("kernels/pack.json", '"symbols": {', '"symbols": {"more": 1, ', "not a kernel pack: "),
        ("lock.json", '"count": 1', '"count": 2', "the lock is for 2 devices, and this worker runs one rank"),
    ],
)
def test_a_bundle_that_does_not_hold_together_touches_no_device(starts, changed, place, before, after, words):
    path = changed / place
    text = path.read_text()
    assert before in text
    path.unlink()
    text = text.replace(before, after)
    path.write_text(sealed_text(text) if place == "lock.json" else text)
    ((outcome, log),) = starts({}, bundle=changed)
    assert words in outcome["error"]
    assert (outcome["code"], log) == (9, "")


@pytest.mark.parametrize(
    ("fault", "code"),
    [
        ("cuEventSynchronize:3", 700),
        ("cuEventSynchronize:2", 214),
        ("cuLaunchKernel:90", 719),
        ("cuMemcpyHtoDAsync_v2:3", 719),
    ],
)
def test_a_device_that_is_lost_in_a_step_ends_requests_and_worker(launch, tmp_path, fault, code):
    worker = launch(fail=f"{fault}={code}")
    worker.wait_for("ready in")
    client = worker.client()
    cause = f"the CUDA driver: {fault.partition(':')[0]}: {LOST[code]}"
    with pytest.raises(openai.APIError, match=f"the engine failed: {cause}"):
        list(client.completions.create(model="tiny", prompt="a", max_tokens=100, temperature=0, stream=True))
    assert worker.process.wait(PATIENCE) == 9
    _, text = worker.end()
    assert f"pih-worker: error: {cause}" in text
    assert f"while stopping: plugin backend/cuda failed to stop: the CUDA driver: cuCtxSetCurrent: {LOST[code]}" in text
    assert (tmp_path / "simgpu.log").read_text() == RELEASED
