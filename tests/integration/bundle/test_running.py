"""A small worker in a real image: started under bwrap, by its own ld.so, and by podman, and stopped again."""

import json
import os
import shutil
import stat
import subprocess
import sys
import tarfile
import time
from pathlib import Path

import pytest

from pih.build import interpreter, prune
from pih.build.store import open_store
from pih.bundle import client, engine, layout, run, unpacked
from pih.bundle.unpack import unpack
from pih_runtime.errors import WorkerError
from tests.integration.build.tiny import INTERPRETER
from tests.support.artifacts import artifact, pinned
from tests.support.rot import rotten
from tests.support.waiting import PATIENCE, runs, until
from tests.unit.bundle import layouts

WORKER = b"""#!/usr/bin/python3.11 -IB
import json, os, signal, socket, sys, threading
kind, _, address = sys.argv[2].partition(":")
if kind == "unix":
    server = socket.socket(socket.AF_UNIX)
    server.bind(address)
else:
    server = socket.socket()
    server.bind((kind, int(address)))
server.listen()
weights = os.path.join(os.path.dirname(os.path.realpath(__file__)), "../../pih/weights/weights.safetensors")
def stop(*_):
    print("stopped gently", file=sys.stderr, flush=True)
    os._exit(0)
signal.signal(signal.SIGTERM, stop)
print("user", os.getuid(), "pid", os.getpid(), "env", sorted(os.environ), file=sys.stderr, flush=True)
while True:
    connection, _ = server.accept()
    request = connection.recv(65536)
    while b"POST" in request and b"}" not in request:
        request += connection.recv(65536)
    if b"POST" in request:
        net = "/sys/class/net"
        seen = {"uid": os.getuid(), "pid": os.getpid(), "home": os.path.isdir("/home"), "env": dict(os.environ),
                "network": sorted(os.listdir(net)) if os.path.isdir(net) else [],
                "writable": os.access("/usr", os.W_OK),
                "granted": open("/etc/passwd").read() if os.path.exists("/etc/passwd") else "",
                "etc": sorted(os.listdir("/etc")) if os.path.isdir("/etc") else [],
                "weights": open(weights).read() if os.path.exists(weights) else None}
        if b"die" in request:
            os._exit(3)
        if b"damaged" in request:
            os._exit(8)
        data = json.dumps({"choices": [{"delta": {"content": json.dumps(seen)}}]})
        answer = "data: %s\\n\\ndata: [DONE]\\n\\n" % data
    else:
        answer = "ready"
    connection.sendall(b"HTTP/1.1 200 OK\\r\\nConnection: close\\r\\n\\r\\n" + answer.encode())
    connection.close()
"""

GRANTED = "/etc/passwd"  # of the host, by the word of the lock
VARIABLE = "NPU_VISIBLE_DEVICES"
UNGRANTED = ("NPU_DEBUG", "http_proxy", "LD_LIBRARY_PATH")


@pytest.fixture(autouse=True)
def host_environment(monkeypatch):
    monkeypatch.setenv(VARIABLE, "1,0")
    for name in UNGRANTED:
        monkeypatch.setenv(name, "/nowhere")


@pytest.fixture(scope="session")
def store(tmp_path_factory):
    return open_store(tmp_path_factory.mktemp("store"))


@pytest.fixture(scope="session")
def image(tmp_path_factory, store):
    for name in INTERPRETER:
        store.add_file(artifact("deb", name))
    artifacts = [pinned("deb", name) for name in INTERPRETER]
    root = interpreter.unpack(artifacts, store)
    archive = tmp_path_factory.mktemp("archive") / "layer.tar"
    with tarfile.open(archive, "w", format=tarfile.USTAR_FORMAT) as tar:
        for path in sorted(root.rglob("*")):
            tar.add(path, path.relative_to(root).as_posix(), recursive=False)
    asked = {
        "network": "listen",
        "devices": ["/dev/null"],
        "paths": [GRANTED],
        "environment": [VARIABLE, "NPU_NOT_SET"],
    }
    lock = json.dumps({"plugins": [{"id": "surface/small", "permissions": asked}]}).encode()
    top = layouts.tar([("pih/bundle.json", b'{"files": []}'), ("pih/lock.json", lock), ("usr/bin/pih-worker", WORKER)])
    data = archive.read_bytes()
    settings = {
        "Entrypoint": ["/usr/bin/pih-worker"],
        "User": "65532:65532",
        "Env": ["PATH=/usr/bin", "LC_ALL=C.UTF-8"],
    }
    path = layouts.write(tmp_path_factory.mktemp("image") / "layout", [data, top], settings=settings)
    return layout.read(path)


@pytest.fixture
def private():
    with run.private_folder() as folder:
        yield folder


@pytest.fixture
def weights(tmp_path):
    path = tmp_path / "weights.safetensors"
    path.write_text("heavy")
    return path


def ask(worker, what="hello"):
    client.wait_ready(worker.address, worker.alive, PATIENCE)
    return json.loads("".join(client.chat(worker.address, {"text": what})))


needs_bwrap = pytest.mark.skipif(bool(unpacked.bwrap_trouble()), reason=unpacked.bwrap_trouble())


@needs_bwrap
def test_in_a_sandbox(image, store, private, weights):
    with unpacked.started(image, store, private, weights) as worker:
        seen = ask(worker)
    assert seen["uid"] == 65532
    assert seen["pid"] == 1
    assert seen["network"] == []
    assert (seen["granted"], seen["etc"]) == (Path(GRANTED).read_text(), ["ld.so.conf.d", "passwd", "python3.11"])
    assert seen["weights"] == "heavy"
    assert not seen["home"]
    assert not seen["writable"]
    assert set(seen["env"]) == {"PATH", "LC_ALL", "PWD", VARIABLE}
    assert seen["env"][VARIABLE] == "1,0"
    assert worker.process.returncode == 0
    assert "stopped gently" in worker.last_words()


@needs_bwrap
def test_on_a_port_of_the_host(image, store, free_port, capfd):
    with unpacked.started(image, store, run.Public("127.0.0.1", free_port), None) as worker:
        assert ask(worker)["weights"] is None
    assert "stopped gently" in capfd.readouterr().err


def test_without_a_sandbox(image, store, private, weights, monkeypatch, capfd):
    monkeypatch.setattr(unpacked, "bwrap_trouble", lambda: "bwrap is not installed")
    with unpacked.started(image, store, private, weights) as worker:
        seen = ask(worker)
    assert "without a sandbox: bwrap is not installed" in capfd.readouterr().err
    assert seen["uid"] == os.getuid()
    assert set(seen["env"]) == {"PATH", "LC_ALL", VARIABLE}
    assert seen["weights"] == "heavy"
    assert worker.stop() == 0
    assert not (unpack(image, store) / "pih/weights/weights.safetensors").exists()


@needs_bwrap
def test_a_worker_that_dies_is_noticed(image, store, private):
    with unpacked.started(image, store, private, None) as worker, pytest.raises(WorkerError, match="broke off"):
        ask(worker, "die")
    assert worker.process.returncode == 3


@needs_bwrap
def test_an_unpacked_image_whose_worker_finds_damage_is_unpacked_again(image, store, private, capfd):
    root = unpack(image, store)

    def refused():
        with unpacked.started(image, store, private, None) as worker, pytest.raises(WorkerError, match="broke off"):
            ask(worker, "damaged")
        (private.folder / run.SOCKET).unlink()

    refused()
    assert "damaged  the unpacked image" not in capfd.readouterr().err  # it may have been weights delivered apart
    assert root.exists()
    rotten(root / "pih/lock.json", at=3)
    refused()
    assert "damaged  the unpacked image" in capfd.readouterr().err
    assert not root.exists()
    assert unpack(image, store) == root


@needs_bwrap
def test_a_worker_that_cannot_start_says_why(image, store, private, tmp_path):
    with (
        unpacked.started(image, store, private, tmp_path / "no such weights") as worker,
        pytest.raises(WorkerError, match="ended before"),
    ):
        client.wait_ready(worker.address, worker.alive, PATIENCE)
    assert "no such weights" in worker.last_words()


@needs_bwrap
def test_a_killed_client_takes_the_worker_with_it(image, store):
    """One that is ready: bwrap binds the program's life to its own last of all, right before it starts it."""
    script = f"""
import os, pathlib, sys
from pih.build.store import open_store
from pih.bundle import client, layout, run, unpacked
with run.private_folder() as private, unpacked.started(
    layout.read(pathlib.Path({str(image.path)!r})), open_store(pathlib.Path({str(store.root)!r})), private, None
) as worker:
    client.wait_ready(worker.address, worker.alive, {PATIENCE})
    bwrap = worker.process.pid
    print(bwrap, pathlib.Path("/proc", str(bwrap), "task", str(bwrap), "children").read_text(), flush=True)
    os.kill(os.getpid(), 9)
"""
    root = Path(__file__).resolve().parents[3]
    environment = {**os.environ, "PYTHONPATH": f"{root / 'resolver'}:{root / 'runtime'}"}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == -9
    bwrap, worker = done.stdout.split()
    until(lambda: not runs(bwrap) and not runs(worker), what="the worker's end")


def test_in_podman(image, private, weights, podman):
    with engine.started("podman", image, private, weights) as worker:
        seen = ask(worker)
        assert podman("ps", "--quiet").strip()
    assert seen["uid"] == 65532
    assert seen["pid"] == 1
    assert seen["granted"] == Path(GRANTED).read_text()
    assert seen["network"] in ([], ["lo"])
    assert seen["env"][VARIABLE] == "1,0"
    assert not {*UNGRANTED, "NPU_NOT_SET"} & seen["env"].keys()
    assert seen["weights"] == "heavy"
    assert not seen["writable"]
    assert "stopped gently" in worker.last_words()
    assert not podman("ps", "--quiet", "--all").strip()
    assert engine.load("podman", image) == image.config_digest.removeprefix("sha256:")
    assert podman("images", "--quiet", "--no-trunc").split() == [image.config_digest]


def test_podman_that_does_not_take_the_image(tmp_path, podman):
    broken = layouts.write(tmp_path / "layout", [b"no archive" * 1000])
    with pytest.raises(WorkerError, match="podman does not load the image"):
        engine.load("podman", layout.read(broken))


@pytest.mark.parametrize("sandbox", [pytest.param("bwrap", marks=needs_bwrap), "none"])
def test_nobody_takes_away_what_a_worker_runs_from(image, store, private, monkeypatch, sandbox):
    if sandbox == "none":
        monkeypatch.setattr(unpacked, "bwrap_trouble", lambda: "bwrap is not installed")
    with unpacked.started(image, store, private, None) as worker:
        tomorrow = time.time() + 86400
        [root] = [entry for entry in prune.unused(store, tomorrow) if entry.kind == "roots"]
        assert not prune.remove(store, root)
        assert ask(worker)
    assert prune.remove(store, root)
    assert unpack(image, store).is_dir()


def test_unpacked_files_are_nobody_elses(image, store):
    root = unpack(image, store)
    assert stat.S_IMODE((root / "usr/bin/pih-worker").stat().st_mode) == 0o755
    assert shutil.which("pih-worker", path=str(root / "usr/bin"))
