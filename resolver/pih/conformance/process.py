"""The plugin's own process as the host sees it: what it answers, each answer within its time, and how it ended.

Nothing that the process writes is believed to be of a certain size, or to be an answer.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

import attrs

from pih.reading import json_of
from pih_runtime.errors import UsageError

SECONDS = 120.0  # for one check; none takes a tenth of it
_PLACE = "/tmp"  # noqa: S108 - short, whatever TMPDIR: the path of a socket has at most 107 bytes
_ENDING = 10.0  # for the process to end with all its own
_LINE = 1 << 20  # bytes of an answer, far more than one has
_SAID = 500  # bytes of stderr that are shown: its end
_FIX = "name a Python interpreter that has the plugin's wheels"
_OUTCOMES = ("passed", "failed", "skipped")


@attrs.frozen
class Check:
    """One finding. outcome: passed, failed, or skipped with the reason in `detail`."""

    name: str
    outcome: str
    detail: str = ""


def told(command: Sequence[str]) -> list[bytes]:
    """The words that a short program writes; raises UsageError where the interpreter cannot be started, or hangs."""
    with _begun(command, stderr=subprocess.DEVNULL) as process:
        try:
            return process.communicate(timeout=SECONDS)[0].split()
        except subprocess.TimeoutExpired:
            raise UsageError(f"{command[0]} does not end", where="--python", fix=_FIX) from None
        finally:
            process.kill()


def checks(command: Sequence[str], root: Path) -> Iterator[Check]:
    """Those that `probe` makes, as it makes them; then a failed one where it did not come to its end."""
    environment = {"PYTHONPATH": f"{root / 'resolver'}:{root / 'runtime'}", "PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"}
    with _own_place() as place, _begun(command, environment={**environment, "TMPDIR": place}) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        said = bytearray()
        drain = threading.Thread(target=_drain, args=(process.stderr, said), daemon=True)
        drain.start()
        process.stderr = None  # the thread's to close
        running, begin, done = "its start", time.monotonic(), False
        try:
            for line in _lines(process.stdout.fileno()):
                answer = _answer(line)
                if "left" in answer:
                    yield Check("end of the process", "failed", f"child processes are left: {answer['left']}")
                    continue
                done = "done" in answer
                running, begin = answer.get("begin", ""), time.monotonic()
                if "check" in answer:
                    yield Check(answer["check"], answer["outcome"], answer["detail"])
            code = process.wait(SECONDS)
        except (TimeoutError, subprocess.TimeoutExpired):
            why = f"does not end (stopped after {time.monotonic() - begin:.0f} s)"
        except ValueError as problem:
            why = f"its process does not answer as the suite does: {problem}"
        else:
            drain.join(1)  # longer only where a child of the process has its stderr
            why = "" if done and code == 0 else _ended(code, said.decode(errors="replace").strip())
        finally:
            _end(process)
        if why:
            yield Check(running or "end of the process", "failed", why)


@contextmanager
def _own_place() -> Iterator[str]:
    """A folder for what it writes, which goes with it also where it was ended by force."""
    with tempfile.TemporaryDirectory(prefix="pih-check-", dir=_PLACE, ignore_cleanup_errors=True) as place:
        yield place


def _end(process: subprocess.Popen[bytes]) -> None:
    """With all that it has begotten: it sees to that itself where its input ends."""
    assert process.stdin is not None
    process.stdin.close()
    with suppress(subprocess.TimeoutExpired):
        process.wait(_ENDING)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def _begun(
    command: Sequence[str], stderr: int = subprocess.PIPE, environment: Mapping[str, str] | None = None
) -> subprocess.Popen[bytes]:
    """In a session of its own."""
    pipe = subprocess.PIPE
    try:
        return subprocess.Popen(
            command, stdin=pipe, stdout=pipe, stderr=stderr, env=environment, start_new_session=True
        )
    except OSError as problem:
        what = f"{command[0]} cannot be started: {problem.strerror}"
        raise UsageError(what, where="--python", fix=_FIX) from problem


def _ended(code: int, said: str) -> str:
    how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
    return f"its process ended with {how} before its time" + (f": {said}" if said else "")


def _answer(line: bytes) -> dict[str, Any]:
    """One line of `probe`; raises ValueError where it is none."""
    answer = json_of(line) if line.startswith(b"{") else {}
    shape = {key: type(value) for key, value in answer.items()}
    if shape in ({"begin": str}, {"done": bool}, {"left": str}):
        return dict(answer)
    if shape != {"check": str, "outcome": str, "detail": str} or answer["outcome"] not in _OUTCOMES:
        raise ValueError(f"{line[:80]!r} is no check")
    return dict(answer)


def _lines(descriptor: int) -> Iterator[bytes]:
    """Lines as they come; raises TimeoutError where the next one takes longer than SECONDS, ValueError past _LINE."""
    rest = b""
    while True:
        ready, _, _ = select.select([descriptor], [], [], SECONDS)
        if not ready:
            raise TimeoutError
        piece = os.read(descriptor, 1 << 16)
        if not piece:
            return
        *whole, rest = (rest + piece).split(b"\n")
        if len(rest) > _LINE:
            raise ValueError(f"a line of more than {_LINE} bytes")
        yield from whole


def _drain(stream: IO[bytes], said: bytearray) -> None:
    """Keep the end of what comes."""
    with stream:
        while piece := os.read(stream.fileno(), 1 << 16):
            said += piece
            del said[:-_SAID]
