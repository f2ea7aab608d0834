"""What a lock grants becomes the sandbox's arguments, and nothing else does."""

import json
import os
from dataclasses import replace
from pathlib import Path

import attrs
import pytest

from pih.bundle import driver, engine, layout, permissions, run, unpacked
from pih.bundle.driver import Driver
from pih.bundle.permissions import Grants
from pih_runtime.errors import SealError, WorkerError
from tests.unit.bundle import layouts


def image(tmp_path, *asked, files=(), driver=""):
    plugins = [{"id": f"backend/{number}", "permissions": item} for number, item in enumerate(asked)]
    listed = json.dumps({"files": [{"path": path} for path in files]}).encode()
    target = {"target": {"device": {"driver": driver}}} if driver else {}
    lock = json.dumps({"plugins": plugins, **target}).encode()
    top = layouts.tar([("pih/bundle.json", listed), ("pih/lock.json", lock)])
    return layout.read(layouts.write(tmp_path / "layout", [top]))


def asking(network="none", devices=(), paths=(), environment=()):
    return {"network": network, "devices": list(devices), "paths": list(paths), "environment": list(environment)}


def test_permissions_of_all_plugins_come_together(tmp_path):
    (tmp_path / "npu0").write_text("")
    (tmp_path / "npu1").write_text("")
    asked = asking(devices=["/dev/null", "/dev/full"]), asking("listen", ["/dev/null"], ["/etc/pass*"])
    found = permissions.of_image(image(tmp_path, *asked))
    assert found == Grants(listen=True, devices=("/dev/full", "/dev/null"), paths=found.paths)
    assert "/etc/passwd" in found.paths


def test_what_every_sandbox_has_needs_no_grant(tmp_path):
    found = permissions.of_image(image(tmp_path, asking(paths=["/proc", "/sys/fs/cgroup", "/pih/weights", "/tmp"])))
    assert found == Grants(listen=False)


def test_a_device_that_the_host_has_not(tmp_path):
    with pytest.raises(WorkerError, match="backend/0 needs /dev/no-such-npu"):
        permissions.of_image(image(tmp_path, asking(devices=["/dev/no-such-npu*"])))


@pytest.mark.parametrize(
    "path", ["etc", "/", "/etc/../root", "/a:/b", "/a,b", "/a b", "//etc", "/etc/", "/**", "/dev/**/x", ""]
)
def test_what_is_no_path_is_refused(tmp_path, path):
    with pytest.raises(SealError, match="which is no path"):
        permissions.of_image(image(tmp_path, asking(paths=[path])))


def test_a_pattern_of_half_the_host_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(permissions, "_MOST_MATCHES", 3)
    with pytest.raises(SealError, match=r"asks for /dev/\*, which is more than 3 things of this host"):
        permissions.of_image(image(tmp_path, asking(devices=["/dev/*"])))


def test_the_host_cannot_take_the_place_of_the_bundles_files(tmp_path):
    with pytest.raises(SealError, match="where the bundle has /etc/passwd of its own"):
        permissions.of_image(image(tmp_path, asking(paths=["/etc"]), files=["/etc/passwd"]))


def test_variables_are_passed_on_where_a_plugin_names_them_and_the_host_has_them(tmp_path, monkeypatch):
    monkeypatch.setenv("NPU_VISIBLE_DEVICES", "1")
    monkeypatch.setenv("NPU_DEBUG", "1")
    monkeypatch.delenv("NPU_LOG", raising=False)
    found = permissions.of_image(image(tmp_path, asking(environment=["NPU_LOG", "NPU_VISIBLE_DEVICES"])))
    assert found.environment == ("NPU_VISIBLE_DEVICES",)
    assert found.variables() == {"NPU_VISIBLE_DEVICES": "1"}


@pytest.mark.parametrize("name", ["LD_PRELOAD", "PYTHONPATH", "A=B", "--env", ""])
def test_a_lock_cannot_have_the_worker_directed_by_the_host(tmp_path, name):
    with pytest.raises(SealError, match="backend/0 asks for"):
        permissions.of_image(image(tmp_path, asking(environment=[name])))


def test_what_the_image_sets_is_not_the_host_s_to_say(tmp_path, monkeypatch):
    monkeypatch.setenv("NPU_MODE", "fast")
    made = image(tmp_path, asking(environment=["NPU_MODE"]))
    made = attrs.evolve(made, config={"config": {"Env": ["NPU_MODE=exact"]}})
    with pytest.raises(SealError, match="asks for NPU_MODE, which the image sets itself"):
        run.granted(made, run.Private(tmp_path))


@pytest.mark.parametrize("path", ["/etc/passwd", "/usr"])
def test_what_is_no_device_is_not_given_as_one(tmp_path, path):
    """The sandbox would say so in words of its own."""
    with pytest.raises(WorkerError, match=f"asks for the device {path}, which is none"):
        permissions.of_image(image(tmp_path, asking(devices=[path])))


def test_a_family_of_devices_is_an_engines_to_bring(tmp_path):
    grants = permissions.of_image(image(tmp_path, asking(devices=["nvidia.com/gpu", "/dev/null"])))
    assert grants == Grants(listen=False, devices=("/dev/null",), families=("nvidia.com/gpu",))
    for program in engine.ENGINES:
        arguments = engine.command(program, "n", "image", run.Public("127.0.0.1", 1), None, grants)
        assert "--device /dev/null --device nvidia.com/gpu=all" in " ".join(arguments)


def test_a_family_that_nobody_knows_is_no_path(tmp_path):
    with pytest.raises(SealError, match=r"asks for 'acme\.com/npu', which is no path"):
        permissions.of_image(image(tmp_path, asking(devices=["acme.com/npu"])))


def test_a_driver_that_is_no_version_is_no_lock(tmp_path):
    with pytest.raises(SealError, match="not a lock"):
        permissions.of_image(image(tmp_path, asking(devices=["nvidia.com/gpu"]), driver="newest"))


def test_a_driver_is_what_the_hosts_loader_finds(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    lines = [
        "2 libs found in cache `/etc/ld.so.cache'",
        "\tlibcuda.so.1 (libc6) => /usr/lib32/libcuda.so.1",
        "\tlibcuda.so.12 (libc6,x86-64) => /elsewhere/libcuda.so.12",
        f"\tlibcuda.so.1 (libc6,x86-64) => {tmp_path}/x86_64/libcuda.so.1",
        f"\tlibcuda.so.1 (libc6,AArch64) => {tmp_path}/aarch64/libcuda.so.1",
    ]
    program = tmp_path / "ldconfig"
    program.write_text("#!/bin/sh\n[ \"$*\" = -p ] && cat <<'END'\n" + "\n".join(lines) + "\nEND\n")
    program.chmod(0o755)
    library = tmp_path / os.uname().machine / "libcuda.so.1"
    with pytest.raises(WorkerError, match=f"finds libcuda.so.1 at {library}, and nothing is there") as caught:
        driver.of_host(["nvidia.com/gpu"])
    assert "ldconfig" in caught.value.fix
    library.parent.mkdir()
    library.touch()
    found = driver.of_host(["nvidia.com/gpu"])
    ((path, place),) = found.libraries
    assert path == library
    assert place == "/usr/local/nvidia/lib64/libcuda.so.1"
    assert found.folders == (str(path.parent),)
    program.write_text("#!/bin/sh\n")
    with pytest.raises(WorkerError, match=r"runs on nvidia\.com/gpu, and this host has no libcuda\.so\.1"):
        driver.of_host(["nvidia.com/gpu"])


def test_a_lock_that_is_none(tmp_path):
    top = layouts.tar([("pih/bundle.json", b"{}"), ("pih/lock.json", b"{}")])
    with pytest.raises(SealError, match="not a lock"):
        permissions.of_image(layout.read(layouts.write(tmp_path / "layout", [top])))


def test_no_port_without_a_plugin_that_may_listen(tmp_path):
    made = image(tmp_path, asking())
    with pytest.raises(WorkerError, match="no plugin of the bundle may listen"):
        run.granted(made, run.Public("127.0.0.1", 8000))
    assert run.granted(made, run.Private(tmp_path)) == Grants(listen=False)


def test_they_become_arguments():
    grants = Grants(listen=True, devices=("/dev/npu0",), paths=("/usr/lib/libnpu.so.1",), environment=("NPU_LOG",))
    given = Driver(("/dev/nvidia0",), ((Path("/usr/lib/libcuda.so.1"), "/inner/libcuda.so.1"),))
    assert unpacked.bound(grants, given) == [
        "--dev-bind", "/dev/npu0", "/dev/npu0", "--dev-bind", "/dev/nvidia0", "/dev/nvidia0",
        "--ro-bind", "/usr/lib/libnpu.so.1", "/usr/lib/libnpu.so.1",
        "--ro-bind", "/usr/lib/libcuda.so.1", "/inner/libcuda.so.1",
    ]  # fmt: skip
    text = " ".join(engine.command("podman", "n", "image", run.Public("127.0.0.1", 1), None, grants))
    assert (
        "--device /dev/npu0 --volume /usr/lib/libnpu.so.1:/usr/lib/libnpu.so.1:ro --env NPU_LOG --http-proxy=false"
        in text
    )
    assert "proxy" not in " ".join(engine.command("docker", "n", "image", run.Public("127.0.0.1", 1), None, grants))


@pytest.mark.parametrize(
    "line",
    [
        "NVRM version: NVIDIA UNIX x86_64 Kernel Module  575.64.03  Thu Jul  3 20:21:46 UTC 2025\n",
        "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  575.64.03  Release Build  (build@host)\n",
    ],
)
def test_a_driver_older_than_the_locks_is_told_before_a_worker_starts(tmp_path, monkeypatch, line):
    (tmp_path / "version").write_text(line + "GCC version:  gcc version 12.2.0\n")
    family = driver.FAMILIES["nvidia.com/gpu"]
    assert family.version[0] == "/proc/driver/nvidia/version"
    here = replace(family, version=(str(tmp_path / "version"), family.version[1]))
    monkeypatch.setitem(driver.FAMILIES, "nvidia.com/gpu", here)
    made = image(tmp_path, asking(devices=["nvidia.com/gpu"]), driver="580.65.06")
    with pytest.raises(WorkerError, match=r"for driver 580\.65\.06 or newer, and this host has 575\.64\.03") as caught:
        run.granted(made, run.Private(tmp_path))
    assert "device.driver" in caught.value.fix
    for oldest in ("575.64.03", "575.9", ""):
        driver.check(["nvidia.com/gpu"], oldest)
    (tmp_path / "version").unlink()
    assert run.granted(made, run.Private(tmp_path)).driver == "580.65.06"
