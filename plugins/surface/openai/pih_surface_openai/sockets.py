"""The listening socket: bound before the server starts, so that its errors are the worker's."""

from __future__ import annotations

import socket
import stat
from pathlib import Path

from pih_runtime.errors import WorkerError

BACKLOG = 1024


def listen(where: str) -> socket.socket:
    """A listening socket for 'HOST:PORT' ('[::1]:8000' for IPv6) or 'unix:PATH'."""
    try:
        return _unix(Path(where[5:])) if where.startswith("unix:") else _tcp(where)
    except (OSError, ValueError, OverflowError) as problem:
        reason = getattr(problem, "strerror", None) or str(problem)
        raise WorkerError(
            f"cannot listen: {reason}", where=where, fix="choose another address with --listen"
        ) from problem


def address(listener: socket.socket) -> str:
    """Where a client finds it; port 0 is resolved."""
    name = listener.getsockname()
    if listener.family == socket.AF_UNIX:
        return f"unix:{name}"
    host = f"[{name[0]}]" if listener.family == socket.AF_INET6 else name[0]
    return f"http://{host}:{name[1]}"


def _tcp(where: str) -> socket.socket:
    host, _, port = where.rpartition(":")
    host = host.strip("[]")
    family, kind, protocol, _, target = socket.getaddrinfo(host or None, int(port), type=socket.SOCK_STREAM)[0]
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(target)
        listener.listen(BACKLOG)
    except BaseException:
        listener.close()
        raise
    return listener


def _unix(path: Path) -> socket.socket:
    if path.exists() and stat.S_ISSOCK(path.stat().st_mode) and not _answers(path):
        path.unlink()  # left by a process that was killed
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listener.bind(str(path))
        listener.listen(BACKLOG)
    except BaseException:
        listener.close()
        raise
    return listener


def _answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        return probe.connect_ex(str(path)) == 0
