"""Kind platform: what it says of this machine holds, limits of the process included; a lock for another is refused."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from pih.conformance.findings import BrokenError, Named, SkippedError
from pih.conformance.subject import Subject, running
from pih_runtime.errors import PihError
from pih_runtime.isa import ISA_FLAGS, cpu_flags

_LIMIT = 384 << 20  # bytes: more than this process has, less than any machine


def checks(subject: Subject) -> Iterator[Named]:
    """Discovery, limits, refusals."""
    yield "host: threads that it may use", partial(_threads, subject)
    yield "host: memory that there is", partial(_memory, subject)
    yield "host: the cgroup's limit of memory", partial(_limit, subject)
    yield "host: instruction sets that the CPU has", partial(_isa, subject)
    yield "host: a lock for another machine is refused", partial(_refuses, subject)


def _lock(subject: Subject, **target: Any) -> Mapping[str, Any]:
    lock = subject.context().lock
    return {**lock, "target": {**lock["target"], **target}}


def _threads(subject: Subject) -> None:
    """At most the lock's, at most the CPUs that the process may run on."""
    allowed = os.sched_getaffinity(0)
    with running(subject, lock=_lock(subject, threads=1)) as host:
        if host.threads != 1:
            raise BrokenError(f"the lock has 1 thread, the host says {host.threads}")
    os.sched_setaffinity(0, {min(allowed)})
    try:
        with running(subject, lock=_lock(subject, threads=64)) as host:
            if host.threads != 1:
                raise BrokenError(f"the process may run on 1 CPU, the host says {host.threads} threads")
    finally:
        os.sched_setaffinity(0, allowed)


def _memory(subject: Subject) -> None:
    there = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    with running(subject) as host:
        if not 0 < host.memory_bytes <= there:
            raise BrokenError(f"the machine has {there} bytes, the host says {host.memory_bytes}")


def _limit(subject: Subject) -> None:
    with _limited(), running(subject) as host:
        if host.memory_bytes > _LIMIT:
            raise BrokenError(f"the cgroup's limit is {_LIMIT} bytes, the host says {host.memory_bytes}")


@contextmanager
def _limited() -> Iterator[None]:
    """A cgroup with a limit, and the process in it; SkippedError where none can be made, as without privileges."""
    lines = [line.split(":", 2) for line in Path("/proc/self/cgroup").read_text().splitlines()]
    one = next((path for _, names, path in lines if "memory" in names.split(",")), None)
    mount = Path("/sys/fs/cgroup/memory" if one is not None else "/sys/fs/cgroup")
    path = one if one is not None else next((path for _, names, path in lines if not names), "/")
    home = mount / path.strip("/") if (mount / path.strip("/")).is_dir() else mount
    folder = home / f"pih-check-{os.getpid()}"
    try:
        folder.mkdir()
    except OSError as problem:
        raise SkippedError(f"no cgroup can be made here to try it in: {problem.strerror}") from problem
    try:
        try:
            (folder / ("memory.limit_in_bytes" if one is not None else "memory.max")).write_text(str(_LIMIT))
            (folder / "cgroup.procs").write_text(str(os.getpid()))
        except OSError as problem:
            raise SkippedError(f"a cgroup made here takes no limit: {problem.strerror}") from problem
        yield
        (home / "cgroup.procs").write_text(str(os.getpid()))
    finally:
        if str(os.getpid()) in (folder / "cgroup.procs").read_text().split():
            (home / "cgroup.procs").write_text(str(os.getpid()))
        folder.rmdir()


def _isa(subject: Subject) -> None:
    flags = cpu_flags(Path("/proc/cpuinfo").read_text())
    with running(subject) as host:
        if subject.isa not in host.isa:
            raise BrokenError(f"this CPU has {subject.isa}, the host says {', '.join(sorted(host.isa)) or 'none'}")
        for name in host.isa & ISA_FLAGS.keys():
            if lacking := ISA_FLAGS[name] - flags:
                raise BrokenError(f"the host says {name}, this CPU lacks {', '.join(sorted(lacking))}")


def _refuses(subject: Subject) -> None:
    lock = subject.context().lock
    budget = {**lock["budget"], "total": 1 << 60}
    for what, other in (
        ("an instruction set that this CPU has not", _lock(subject, isa="x86-64-v9")),
        ("a budget past this machine's memory", {**lock, "budget": budget}),
    ):
        try:
            with running(subject, lock=other):
                pass
        except PihError:
            continue
        raise BrokenError(f"a lock with {what} is not refused")
