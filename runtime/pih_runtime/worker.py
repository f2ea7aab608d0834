"""`pih-worker`: verify the bundle, start the lock's plugins, serve until told to stop, release everything.

Runs as PID 1 of a container or as any process. The main thread only waits: for a signal, or for a plugin's `fail`.
"""

from __future__ import annotations

import os
import re
import select
import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from queue import Empty, SimpleQueue
from types import FrameType

from pih_runtime import bundle, lock, microkernel
from pih_runtime.errors import PihError, UsageError, WorkerError, described

USAGE = """usage: pih-worker [--listen HOST:PORT|unix:PATH]

Serves the bundle it lies in. Without --listen, where its lock says.

  pih-worker --listen 127.0.0.1:8000
  pih-worker --listen unix:/run/pih/worker.sock
"""
# An engine sends SIGKILL 10 s after SIGTERM; what is left is for stopping.
DRAIN_SECONDS = 8.0
# Where nobody kills: a device that answers no more must not keep the worker for ever.
STOP_SECONDS = 10.0
_SAME_REQUEST = 1.0  # seconds: signals so close together are one wish
LAST_PORT = 65535
SIGNAL = "signal"
DRAINED = "drained"
End = BaseException | str  # why the main thread stops waiting: SIGNAL, DRAINED, or a plugin's failure
_ENDED = b"\0"  # no number of a signal


def main(argv: Sequence[str] | None = None, root: Path | None = None) -> int:
    """Run the worker to its end; returns the exit code. root: the bundle's /pih, by default that of this file."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if arguments in (["--help"], ["-h"]):
        print(USAGE, end="")
        return 0
    try:
        listen = _listen(arguments)
        _serve(root or Path(__file__).resolve().parents[2], listen)
    except PihError as problem:
        print(f"pih-worker: error: {problem}", file=sys.stderr, flush=True)
        return problem.exit_code
    return 0


def _listen(arguments: list[str]) -> str:
    if not arguments:
        return ""
    if len(arguments) != 2 or arguments[0] != "--listen" or not _is_address(arguments[1]):
        raise UsageError(f"cannot use the arguments {' '.join(arguments)!r}", fix="see pih-worker --help")
    return arguments[1]


def _is_address(text: str) -> bool:
    """HOST:PORT or unix:PATH; the system's own functions take a port modulo 65536."""
    if text.startswith("unix:"):
        return text != "unix:"
    _, colon, port = text.rpartition(":")
    return bool(colon) and re.fullmatch(r"[0-9]{1,5}", port) is not None and int(port) <= LAST_PORT


def _serve(root: Path, listen: str) -> None:
    began = time.monotonic()
    ends: SimpleQueue[End] = SimpleQueue()
    _on_signals(ends)
    seal = bundle.verify(root)
    deployment = lock.read(root / "lock.json")
    _log_identity(seal, deployment)
    ready = [False]
    if deployment.ranks != 1:
        raise WorkerError(
            f"the deployment has {deployment.ranks} ranks, one for each device, and this worker runs one",
            where=f"{root / 'lock.json'}: target.device.count",
            fix="build with device.count = 1 in the profile",
        )
    surroundings = microkernel.Surroundings(
        root=root, listen=listen or deployment.listen, log=_log, ready=lambda: ready[0], fail=ends.put
    )
    started: list[microkernel.Started] = []
    end: End
    try:
        for item in microkernel.start(deployment, surroundings):
            started.append(item)
            if not ends.empty():
                break
        else:
            ready[0] = True
            _log(f"ready in {time.monotonic() - began:.2f} s")
        end = ends.get()
    except PihError as problem:
        end = problem
    ready[0] = False
    if end == SIGNAL and started:
        end = _drain(started, ends)
    with _watched():
        problems = microkernel.stop(started)
    _raise(end, problems)
    _log("stopped")


def _on_signals(ends: SimpleQueue[End]) -> None:
    """PID 1 has no default actions: without a handler, SIGTERM would be ignored."""

    def handle(_number: int, _frame: FrameType | None) -> None:
        ends.put(SIGNAL)  # SimpleQueue.put is reentrant: safe in a handler

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        if signal.getsignal(number) != signal.SIG_IGN:  # as nohup has it
            signal.signal(number, handle)


def _drain(started: list[microkernel.Started], ends: SimpleQueue[End]) -> End:
    """Wait for running requests; a second signal or DRAIN_SECONDS end the wait, a failure ends it as the cause."""

    def run() -> None:
        try:
            microkernel.drain(started)
        except Exception as problem:  # noqa: BLE001 - handed to the main thread, which reports it
            ends.put(problem)
        else:
            ends.put(DRAINED)

    _log(f"stopping: running requests have {DRAIN_SECONDS:g} s to end, a second signal ends them now")
    threading.Thread(target=run, name="drain", daemon=True).start()
    try:
        end = ends.get(timeout=DRAIN_SECONDS)
    except Empty:
        end = SIGNAL
    if end == SIGNAL:
        _log("stopping: requests that still run are ended")
    return end


@contextmanager
def _watched() -> Iterator[None]:
    """Where the block, which stops plugins, does not end, the process ends without it: with 9.

    A thread watches, and a pipe tells it of signals: while the main thread waits inside of a driver, no handler runs.
    """
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    began = time.monotonic()

    def watch() -> None:
        while (waited := time.monotonic() - began) < STOP_SECONDS:
            if not select.select([reader], [], [], STOP_SECONDS - waited)[0] or os.read(reader, 1) == _ENDED:
                break
            if time.monotonic() - began > _SAME_REQUEST:
                break
        if not ended:
            _log("error: a plugin does not stop: the worker ends without it")
            os._exit(WorkerError.exit_code)

    ended: list[bool] = []
    watcher = threading.Thread(target=watch, name="watch", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        ended.append(True)
        os.write(writer, _ENDED)
        watcher.join()
        signal.set_wakeup_fd(-1)
        os.close(reader)
        os.close(writer)


def _raise(end: End, problems: list[str]) -> None:
    """One error for the user: the first cause, then every release error."""
    lines = [f"while stopping: {problem}" for problem in problems]
    if isinstance(end, BaseException):
        lines.insert(0, described(end))
    if lines:
        error = WorkerError("\n  ".join(lines))
        error.exit_code = end.exit_code if isinstance(end, PihError) else WorkerError.exit_code
        raise error


def _log_identity(seal: bundle.Bundle, deployment: lock.Lock) -> None:
    _log(f"bundle {seal.name}, lock {seal.lock}, profile {deployment.profile}, PIH {deployment.pih}")
    _log("plugins " + " ".join(f"{plugin.id}={plugin.version}" for plugin in deployment.plugins))
    _log("budget in bytes " + " ".join(f"{name}={value}" for name, value in deployment.budget.items()))
    for fallback in deployment.fallbacks:
        _log(f"fallback {fallback}: slower or less exact, as the profile allows")


def _log(line: str) -> None:
    print(f"pih-worker: {line}", file=sys.stderr, flush=True)
