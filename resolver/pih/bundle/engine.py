"""A worker in a container engine: podman or docker, as the user has configured it."""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import tarfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from pih.bundle import run
from pih.bundle.layout import Layout
from pih.bundle.permissions import Grants
from pih_runtime.errors import WorkerError
from pih_steps.devices import FAMILIES

ENGINES = ("podman", "docker")
NOT_STARTED = (125, 126, 127)  # how both engines end where a container did not come to run
_LOCKED = ("--read-only", "--cap-drop", "ALL", "--security-opt", "no-new-privileges")


@contextmanager
def started(engine: str, image: Layout, listen: run.Listen, weights: Path | None) -> Iterator[run.Running]:
    """The image's worker while the block runs; its container is removed at the end."""
    run.check_host(image)
    grants = run.granted(image, listen)
    reference = load(engine, image)
    name = f"pih-{secrets.token_hex(6)}"
    process, log = run.spawn(command(engine, name, reference, listen, weights, grants), listen)

    def remove() -> None:
        process.kill()
        _ask(engine, ["rm", "--force", name])

    # The client passes SIGTERM on to the worker.
    advice = "; ".join(FAMILIES[family].unknown for family in grants.families)
    worker = run.Running(listen.address, process, log, run.signal_process(process, signal.SIGTERM), remove, advice)
    try:
        yield worker
    finally:
        worker.stop()


def command(
    engine: str, name: str, reference: str, listen: run.Listen, weights: Path | None, grants: Grants
) -> list[str]:
    """The engine's command line for one container that is removed when it ends. grants: what it reaches of the host."""
    arguments = [engine, "run", "--rm", "--name", name, *_LOCKED, *reach(grants)]
    if engine == "podman":
        arguments += ["--http-proxy=false"]  # it would pass the host's proxy settings on
    for path, place in run.mounts(weights):
        arguments += ["--volume", f"{path.absolute()}:{place}:ro"]
    match listen:
        case run.Private(folder):
            arguments += ["--network", "none", "--volume", f"{folder}:{run.INNER_FOLDER}", *_own_user(engine)]
            inner = f"unix:{run.INNER_FOLDER}/{run.SOCKET}"
        case run.Public(_, port):
            arguments += ["--publish", f"{listen.address}:{port}"]
            inner = f"0.0.0.0:{port}"
    return [*arguments, reference, "--listen", inner]


def reach(grants: Grants) -> list[str]:
    """The arguments of either engine for what a container reaches of its host."""
    arguments = [word for path in grants.devices for word in ("--device", path)]
    arguments += [word for family in grants.families for word in ("--device", f"{family}=all")]
    arguments += [word for path in grants.paths for word in ("--volume", f"{path}:{path}:ro")]
    # Without a value the engine's client takes that of its own environment.
    return arguments + [word for name in grants.environment for word in ("--env", name)]


def load(engine: str, image: Layout) -> str:
    """Bring the image to the engine unless it has it; returns what to call it there."""
    known = image.config_digest.removeprefix("sha256:")
    if _ask(engine, ["image", "inspect", "--format", "{{.Id}}", known]).returncode == 0:
        return known
    loader = _start(engine, ["load", "--quiet"])
    assert loader.stdin
    # An engine that refuses the image closes its end, and says why on stderr.
    with suppress(BrokenPipeError), loader.stdin, tarfile.open(fileobj=loader.stdin, mode="w|", bufsize=1 << 20) as tar:
        for path in sorted(image.path.rglob("*")):
            tar.add(path, path.relative_to(image.path).as_posix(), recursive=False)
    loader.stdin = None
    out, err = loader.communicate()
    said = [line.rpartition(": ")[2].strip() for line in out.decode().splitlines() if line.startswith("Loaded image")]
    if loader.returncode or not said:
        raise WorkerError(
            f"{engine} does not load the image: {err.decode(errors='replace').strip()}",
            fix=f"see that `{engine} info` works",
        )
    return said[-1].removeprefix("sha256:")


def _own_user(engine: str) -> Sequence[str]:
    """Where an ordinary user runs the engine, the worker must be that user to share a socket with them."""
    if os.getuid() == 0:
        return ()
    user = ("--user", f"{os.getuid()}:{os.getgid()}")
    return (*user, "--userns", "keep-id") if engine == "podman" else user


def _ask(engine: str, arguments: Sequence[str]) -> subprocess.CompletedProcess[bytes]:
    process = _start(engine, arguments)
    out, err = process.communicate()
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


def _start(engine: str, arguments: Sequence[str]) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(
            [engine, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
    except FileNotFoundError:
        raise WorkerError(
            f"{engine} is not installed", fix=f"install {engine}, or leave --engine out to run without one"
        ) from None
