"""The contract over NCCL. Values lie in the devices' memory; an operation is queued on the stream that joined."""

from __future__ import annotations

import ctypes
import threading
from dataclasses import dataclass, field

from pih_runtime.contracts import Memory
from pih_runtime.errors import WorkerError
from pih_transport_nccl.library import DTYPES, SUM, WHERE, Library, UniqueId

_ADDED = frozenset(DTYPES) - {"u8"}


@dataclass(slots=True)
class Transport:
    """`contracts.Transport`; its ranks are threads of this process."""

    library: Library
    size: int
    dtypes: frozenset[str] = frozenset(DTYPES)
    memory: str = "cuda"
    _group: UniqueId | None = None
    _ranks: dict[int, Rank] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _meeting: threading.Barrier = field(init=False)
    _reason: str = ""

    def __post_init__(self) -> None:
        self._meeting = threading.Barrier(self.size)

    def join(self, rank: int, stream: int = 0) -> Rank:
        """Waits for the others; the calling thread's context is the device of this rank."""
        with self._lock:
            if not 0 <= rank < self.size:
                raise WorkerError(f"there is no rank {rank} of {self.size}", where=WHERE)
            if rank in self._ranks:
                raise WorkerError(f"rank {rank} has joined already", where=WHERE)
            if self._group is None:
                self._group = UniqueId()
                self.library("ncclGetUniqueId", ctypes.byref(self._group))
            joined = self._ranks[rank] = Rank(rank, self.size, stream, self)
        self.meet()
        communicator = ctypes.c_void_p()
        self.library("ncclCommInitRank", ctypes.byref(communicator), self.size, self._group, rank)
        with self._lock:
            joined.communicator = communicator
        return joined

    def meet(self) -> None:
        """Returns when every rank has come."""
        try:
            self._meeting.wait()
        except threading.BrokenBarrierError as broken:
            raise WorkerError(self._reason, where=WHERE) from broken

    def check(self) -> None:
        """WorkerError once `abort` has been called."""
        if self._reason:
            raise WorkerError(self._reason, where=WHERE)

    def abort(self, reason: str) -> None:
        """What is queued ends unfinished, and whoever waits is told; a second call changes nothing."""
        self._end(reason, "ncclCommAbort")

    def stop(self) -> None:
        """Give the communicators back; whoever still waits is told."""
        self._end("the transport has stopped", "ncclCommDestroy")

    def _end(self, reason: str, function: str) -> None:
        with self._lock:
            self._reason = self._reason or reason
            held = [rank.communicator for rank in self._ranks.values() if rank.communicator]
            for rank in self._ranks.values():
                rank.communicator = None
        self._meeting.abort()
        for communicator in held:
            self.library(function, communicator)


@dataclass(slots=True)
class Rank:
    """`contracts.Rank`."""

    rank: int
    size: int
    stream: int
    transport: Transport
    communicator: ctypes.c_void_p | None = None

    def all_reduce(self, send: Memory, receive: Memory, count: int, dtype: str) -> None:
        """Every rank the same bits: NCCL adds each value once and hands the sum around."""
        self._queue("ncclAllReduce", send, receive, count, _added(dtype), SUM)

    def all_gather(self, send: Memory, receive: Memory, count: int, dtype: str) -> None:
        """Bytes as they are."""
        self._queue("ncclAllGather", send, receive, count, _known(dtype))

    def reduce_scatter(self, send: Memory, receive: Memory, count: int, dtype: str) -> None:
        """`count` is of what this rank receives."""
        self._queue("ncclReduceScatter", send, receive, count, _added(dtype), SUM)

    def broadcast(self, memory: Memory, count: int, dtype: str, root: int) -> None:
        """In place."""
        if not 0 <= root < self.size:
            raise WorkerError(f"broadcast: there is no rank {root} of {self.size}", where=WHERE)
        self._queue("ncclBroadcast", memory, memory, count, _known(dtype), root)

    def barrier(self) -> None:
        """Of the hosts' threads; what they have queued may still run."""
        self.transport.meet()

    def _queue(self, function: str, send: Memory, receive: Memory, count: int, *more: int) -> None:
        if not isinstance(send, int) or not isinstance(receive, int):
            raise WorkerError("memory of the host: these ranks exchange addresses of their devices", where=WHERE)
        if count < 0:
            raise WorkerError(f"{count} values", where=WHERE)
        self.transport.check()
        try:
            self.transport.library(function, send, receive, count, *more, self.communicator, self.stream)
        except WorkerError:
            self.transport.check()
            raise


def _known(dtype: str) -> int:
    if dtype not in DTYPES:
        raise WorkerError(f"no collective of {dtype!r}; there are {', '.join(DTYPES)}", where=WHERE)
    return DTYPES[dtype]


def _added(dtype: str) -> int:
    if dtype not in _ADDED:
        raise WorkerError(f"no sum of {dtype!r}; there are {', '.join(sorted(_ADDED))}", where=WHERE)
    return DTYPES[dtype]
