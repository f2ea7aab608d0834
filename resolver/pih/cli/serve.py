"""`pih serve`: serve a deployment's OpenAI-compatible API on a port of this host."""

from __future__ import annotations

import signal
import socket
from pathlib import Path

import click

from pih.bundle import run
from pih.cli import _worker, _workspace
from pih_runtime.errors import WorkerError


@click.command(epilog="Example: pih serve --profile profiles/smollm2-cpu.toml --port 8000")
@_workspace.profile_option
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", type=click.IntRange(1, 65535), help="Port to listen on; default: the profile's.")
@_worker.engine_option
@_worker.weights_option
@_workspace.offline_option
def command(
    profile_path: Path, host: str, port: int | None, engine: str | None, weights_path: Path | None, offline: bool
) -> None:
    """Serve the image's API until Ctrl-C or SIGTERM; requests that run then have 8 s to end."""
    found, image = _worker.image_of(profile_path, weights_path, engine_name=engine, offline=offline)
    signal.signal(signal.SIGTERM, _interrupt)
    listen = run.Public(host, port or found.lock.service.port)
    _check_free(listen)
    with _worker.worker(image, listen, engine_name=engine, weights_path=weights_path) as running:
        click.echo(f"serving {found.lock.service.model_name} at http://{running.address}/v1", err=True)
        try:
            code = running.process.wait()
        except KeyboardInterrupt:
            return
        raise WorkerError(f"the worker ended with exit code {code}", fix="see its last lines above")


def _check_free(listen: run.Public) -> None:
    """Told before anything starts; and so the worker that answers there is ours."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(listen.host, listen.port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, protocol) as trial:
            trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            trial.bind(address)
    except (OSError, UnicodeError) as problem:
        what = getattr(problem, "strerror", None) or str(problem)
        raise WorkerError(f"cannot listen: {what}", where=listen.address, fix="choose --host and --port") from problem


def _interrupt(_number: int, _frame: object) -> None:
    raise KeyboardInterrupt
