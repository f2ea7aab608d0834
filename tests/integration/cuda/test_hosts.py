"""How a worker gets the device of its host: under bwrap, directly, by podman and CDI, carried. The GPU is software."""

import json
import os
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from pih.build import interpreter
from pih.bundle import unpacked
from tests.support import podman as podmans
from tests.support import simgpu
from tests.support.program import pih
from tests.support.waiting import PATIENCE
from tests.support.workers import Worker

LDCONFIG = shutil.which("ldconfig", path=f"{os.environ['PATH']}:/usr/sbin:/sbin")
needs_bwrap = pytest.mark.skipif(bool(unpacked.bwrap_trouble()), reason=unpacked.bwrap_trouble())
# Podman looks for specifications below /etc alone: in a mount namespace, it has another.
OTHER_ETC = 'mount -t overlay overlay -o "lowerdir=/etc,upperdir=$OVER/etc,workdir=$OVER/work" /etc && exec "$@"'
WITHIN = ("unshare", "--mount", "--propagation", "private", "sh", "-ec", OTHER_ETC, "sh")


@pytest.fixture
def host(gpu, tmp_path, monkeypatch):
    """The environment of a host whose loader finds the driver."""
    (tmp_path / "ld.so.conf").write_text(f"{gpu.whole}\n")
    cache = tmp_path / "ld.so.cache"
    subprocess.run([LDCONFIG, "-X", "-C", cache, "-f", tmp_path / "ld.so.conf"], check=True, capture_output=True)
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin/ldconfig"
    program.write_text(f'#!/bin/sh\nexec {LDCONFIG} -C {cache} "$@"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")


def answer(deployment, *arguments, **options):
    ask = ("--prompt", "hello", "--max-tokens", "6", "--json")
    run = pih("run", "--profile", deployment / "tiny-cuda.toml", *ask, *arguments, **options)
    return json.loads(run.stdout)["answer"] if run.returncode == 0 else run


@pytest.fixture(scope="module")
def expected(deployment, gpu, root):
    """The answer of a worker that was started by hand."""
    program = interpreter.command(root, [str(gpu.driver)])
    environment = {"PIH_SIMGPU": simgpu.settings(gpu.modules), "PATH": "/usr/bin"}
    worker = Worker([*program, str(root / "usr/bin/pih-worker"), "--listen", "127.0.0.1:0"], environment)
    worker.wait_for("ready in")
    messages = [{"role": "user", "content": "hello"}]
    reply = worker.client().chat.completions.create(model="tiny", messages=messages, max_tokens=6, temperature=0)
    assert worker.end()[0] == 0
    return reply.choices[0].message.content


@needs_bwrap
@pytest.mark.usefixtures("host")
def test_a_sandbox_gets_the_drivers_library(deployment, expected):
    assert answer(deployment) == expected


@pytest.mark.usefixtures("host")
def test_a_worker_without_a_sandbox_finds_it_too(deployment, expected, tmp_path, monkeypatch):
    (tmp_path / "bin/bwrap").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "bin/bwrap").chmod(0o755)
    assert answer(deployment) == expected


def test_a_host_without_a_driver_is_told_before_a_worker_starts(deployment, tmp_path):
    (tmp_path / "ldconfig").write_text("#!/bin/sh\n")
    (tmp_path / "ldconfig").chmod(0o755)
    run = answer(deployment, environment={"PATH": f"{tmp_path}:{os.environ['PATH']}"}, check=False)
    assert run.returncode == 9
    assert "the bundle runs on nvidia.com/gpu, and this host has no libcuda.so.1" in run.stderr
    assert "to fix: install the device's driver" in run.stderr


@pytest.mark.parametrize(
    ("engine", "code", "said"),
    [
        ([], 9, "the bundle runs on nvidia.com/gpu, and this host has no libcuda.so.1"),
        (["--engine", "podman"], 2, "qwen3-4090d delivers its weights separately"),
    ],
)
def test_what_the_host_lacks_is_told_before_weights_are_asked_for(tmp_path, engine, code, said):
    """An engine brings the driver's library itself."""
    (tmp_path / "ldconfig").write_text("#!/bin/sh\n")
    (tmp_path / "ldconfig").chmod(0o755)
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "PIH_STORE": str(tmp_path / "store")}
    command = ("run", "--profile", "profiles/qwen3-4090d.toml", "--prompt", "x", *engine)
    done = pih(*command, environment=environment, check=False)
    assert (done.returncode, done.stdout) == (code, "")
    assert said in done.stderr


def test_the_image_tells_a_runtime_what_it_uses_of_the_driver(image):
    settings = image.config["config"]["Env"]
    assert "NVIDIA_DRIVER_CAPABILITIES=compute" in settings
    assert "LD_LIBRARY_PATH=/usr/local/nvidia/lib64:/usr/lib64" in settings
    assert not [setting for setting in settings if setting.startswith("NVIDIA_VISIBLE_DEVICES")]


def test_podman_gets_it_by_the_name_that_the_lock_has(deployment, gpu, expected, tmp_path, monkeypatch):
    """A specification as a driver's tool would write it: its library, mounted where the host has it."""
    library = (gpu.whole / "libcuda.so.1").resolve()
    edits = {
        "mounts": [
            {
                "hostPath": str(library),
                "containerPath": "/usr/lib/x86_64-linux-gnu/libcuda.so.1",
                "options": ["ro", "nosuid", "nodev", "bind"],
            }
        ]
    }
    specification = {
        "cdiVersion": "0.3.0",
        "kind": "nvidia.com/gpu",
        "devices": [{"name": "all", "containerEdits": edits}],
    }
    monkeypatch.setenv("OVER", str(tmp_path))
    (tmp_path / "work").mkdir()
    (tmp_path / "etc/cdi").mkdir(parents=True)
    (tmp_path / "etc/cdi/gpu.json").write_text(json.dumps(specification))
    tried = subprocess.run([*WITHIN, "test", "-e", "/etc/cdi/gpu.json"], check=False, capture_output=True, text=True)
    if tried.returncode:
        pytest.skip(f"this machine gives no mount namespace with an /etc of its own: {tried.stderr}")
    program = tmp_path / "bin/podman"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {shlex.join(WITHIN)} {shutil.which("podman")} "$@"\n')
    program.chmod(0o755)
    with podmans.environment(tmp_path / "podman") as environment:
        path = f"{program.parent}:{os.environ['PATH']}"
        assert answer(deployment, "--engine", "podman", environment={**environment, "PATH": path}) == expected


@pytest.mark.skipif(any(Path("/etc/cdi").glob("*")), reason="this host describes its devices to engines")
def test_podman_that_knows_no_gpu_is_told_how_to_describe_one(deployment, tmp_path):
    with podmans.environment(tmp_path / "podman") as environment:
        run = answer(deployment, "--engine", "podman", environment=environment, check=False)
    assert run.returncode == 9
    assert "unresolvable CDI devices nvidia.com/gpu=all" in run.stderr
    assert "nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml" in run.stderr


@pytest.mark.usefixtures("host")
def test_a_carried_bundle_starts_with_it(image, tmp_path):
    file = tmp_path / "tiny.pih"
    pih("export", image.path, "--output", file)
    prefix = tmp_path / "opt"
    subprocess.run(["sh", file, "install", "--prefix", prefix], check=True, capture_output=True)
    for more in ([], ["--no-sandbox"]):
        worker = subprocess.Popen(
            ["sh", prefix / "pih", "start", "--prefix", prefix, "--listen", "127.0.0.1:0", *more],
            stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        try:
            lines = []
            for line in worker.stderr:
                lines.append(line)
                if "ready in" in line:
                    break
            assert any("backend/cuda: simgpu 0 (sm_89)" in line for line in lines), lines
            assert "ready in" in lines[-1], lines
        finally:
            worker.terminate()
            worker.wait(PATIENCE)
    assert subprocess.run(["sh", prefix / "pih", "status", "--check", "--prefix", prefix], check=False).returncode == 0
    (tmp_path / "stale").mkdir()
    (tmp_path / "stale/ldconfig").write_text(
        "#!/bin/sh\nprintf '\\tlibcuda.so.1 (libc6,%s) => /none/libcuda.so.1\\n' x86-64 AArch64\n"
    )
    (tmp_path / "stale/ldconfig").chmod(0o755)
    command = ["sh", prefix / "pih", "start", "--prefix", prefix, "--listen", "127.0.0.1:0"]
    environment = {**os.environ, "PATH": f"{tmp_path}/stale:{os.environ['PATH']}"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 9
    assert "finds libcuda.so.1 at /none/libcuda.so.1, and nothing is there" in done.stderr
