"""How a worker is started: for whom the image is, and with which rights."""

import os
from pathlib import Path

import pytest

from pih.bundle import engine, layout, run, unpacked
from pih.bundle.permissions import Grants
from pih_runtime.errors import WorkerError
from tests.unit.bundle import layouts

PRIVATE = run.Private(Path("/run/user/0/pih-x/s"))
PUBLIC = run.Public("127.0.0.1", 8000)
NOTHING = Grants(listen=True)


def image(tmp_path, change=lambda _, value: value, **settings):
    return layout.read(layouts.write(tmp_path / "layout", [layouts.tar([])], settings=settings, change=change))


def test_an_image_for_another_machine_is_refused(tmp_path):
    def change(part, value):
        return value | {"architecture": "riscv64"} if part == "config" else value

    with pytest.raises(WorkerError, match=r"linux/riscv64, this host is linux/") as failure:
        run.check_host(image(tmp_path, change))
    assert failure.value.exit_code == 9


def test_the_images_own_settings(tmp_path):
    made = image(tmp_path, Entrypoint=["/usr/bin/pih-worker"], Env=["PATH=/usr/bin", "A=b=c"])
    assert run.arguments_of(made) == ["/usr/bin/pih-worker"]
    assert run.environment_of(made) == {"PATH": "/usr/bin", "A": "b=c"}


@pytest.mark.parametrize("entry", [None, [], "sh", [1]])
def test_an_image_without_an_entry_point(tmp_path, entry):
    with pytest.raises(WorkerError, match="entry point"):
        run.arguments_of(image(tmp_path, Entrypoint=entry))


def test_a_private_worker_has_no_network_and_no_rights():
    command = engine.command("podman", "n", "image", PRIVATE, None, NOTHING)
    assert command[:5] == ["podman", "run", "--rm", "--name", "n"]
    text = " ".join(command)
    for part in ("--network none", "--read-only", "--cap-drop ALL", "--security-opt no-new-privileges"):
        assert part in text
    assert "--volume /run/user/0/pih-x/s:/tmp/pih" in text
    assert text.endswith("image --listen unix:/tmp/pih/worker.sock")


def test_a_public_worker_has_its_port_and_no_more():
    text = " ".join(engine.command("docker", "n", "image", PUBLIC, Path("/w/weights.safetensors"), NOTHING))
    assert "--publish 127.0.0.1:8000:8000" in text
    assert "--volume /w/weights.safetensors:/pih/weights/weights.safetensors:ro" in text
    assert "--network" not in text
    assert ".digests" not in text
    assert text.endswith("image --listen 0.0.0.0:8000")


def test_the_digests_of_separate_weights_go_with_them(tmp_path):
    weights = tmp_path / "qwen3.safetensors"
    assert run.mounts(None) == []
    assert run.mounts(weights) == [(weights, "/pih/weights/weights.safetensors")]
    (tmp_path / "qwen3.digests").write_text("")
    text = " ".join(engine.command("podman", "n", "image", PUBLIC, weights, NOTHING))
    assert f"--volume {tmp_path}/qwen3.digests:/pih/weights/weights.digests:ro" in text


@pytest.mark.parametrize(
    ("name", "expected"),
    [("docker", "--user 1000:1000 image"), ("podman", "--user 1000:1000 --userns keep-id image")],
)
def test_an_ordinary_user_shares_the_socket(monkeypatch, name, expected):
    monkeypatch.setattr(os, "getuid", lambda: 1000)
    monkeypatch.setattr(os, "getgid", lambda: 1000)
    assert expected in " ".join(engine.command(name, "n", "image", PRIVATE, None, NOTHING))


def test_an_engine_that_is_not_there(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(WorkerError, match="podman is not installed"):
        engine.load("podman", image(tmp_path))


def test_a_host_without_bwrap(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "not installed" in unpacked.bwrap_trouble()


def test_a_host_where_bwrap_does_not_work(tmp_path, monkeypatch):
    (tmp_path / "bwrap").write_text("#!/bin/sh\necho 'bwrap: No permissions to create a new namespace' >&2\nexit 1\n")
    (tmp_path / "bwrap").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "No permissions to create a new namespace" in unpacked.bwrap_trouble()


def test_a_socket_nobody_else_can_reach():
    with run.private_folder() as private:
        assert private.folder.parent.stat().st_mode & 0o777 == 0o700
        assert private.address == f"unix:{private.folder}/worker.sock"
    assert not private.folder.exists()


def test_a_socket_path_that_is_too_long(tmp_path, monkeypatch):
    deep = tmp_path / ("x" * 100)
    deep.mkdir()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(deep))
    with pytest.raises(WorkerError, match="too long"), run.private_folder():
        pass


def test_an_address_is_as_a_url_has_it():
    assert run.Public("127.0.0.1", 80).address == "127.0.0.1:80"
    assert run.Public("::1", 80).address == "[::1]:80"
    assert run.Public("localhost", 80).address == "localhost:80"


def test_an_engine_publishes_the_address():
    text = " ".join(engine.command("podman", "n", "image", run.Public("::1", 80), None, NOTHING))
    assert "--publish [::1]:80:80 " in text
