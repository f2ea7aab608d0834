"""The contract over the vendor's library: checks what a rank gives, and hands values to the group and back."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from pih_runtime.contracts import Memory
from pih_runtime.errors import WorkerError
from pih_runtime.plan import DTYPE_BYTES
from pih_transport_npu import values
from pih_transport_npu.group import Group

_WHERE = "transport/npu"


@dataclass(slots=True)
class Transport:
    """`contracts.Transport`; ranks are threads, so their memory is the host's."""

    size: int
    dtypes: frozenset[str] = frozenset(DTYPE_BYTES)
    memory: str = "host"
    group: Group = field(init=False)
    joined: set[int] = field(default_factory=set)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self.group = Group(self.size)

    def join(self, rank: int, _stream: int = 0) -> Rank:
        """Nobody is waited for: the first operation does that."""
        with self._lock:
            if not 0 <= rank < self.size:
                raise WorkerError(f"there is no rank {rank} of {self.size}", where=_WHERE)
            if rank in self.joined:
                raise WorkerError(f"rank {rank} has joined already", where=_WHERE)
            self.joined.add(rank)
        return Rank(rank, self.size, self.group)

    def abort(self, reason: str) -> None:
        """Tell every rank."""
        self.group.abort(reason)

    def stop(self) -> None:
        """A second call does nothing."""
        self.group.abort("the transport has stopped")


@dataclass(frozen=True, slots=True)
class Rank:
    """`contracts.Rank`."""

    rank: int
    size: int
    _group: Group

    def all_reduce(self, send: Memory, receive: Memory, count: int, dtype: str) -> None:
        """Added in order of rank, rounded once."""
        values.adds(dtype)
        self._run(
            f"all_reduce {count} {dtype}", send, count, receive, count, dtype, lambda parts: values.sums(parts, dtype)
        )

    def all_gather(self, send: Memory, receive: Memory, count: int, dtype: str) -> None:
        """Bytes as they are."""
        self._run(f"all_gather {count} {dtype}", send, count, receive, self.size * count, dtype, b"".join)

    def reduce_scatter(self, send: Memory, receive: Memory, count: int, dtype: str) -> None:
        """Only this rank's share is added."""
        values.adds(dtype)
        size = count * DTYPE_BYTES[dtype]
        own = slice(self.rank * size, (self.rank + 1) * size)
        what = f"reduce_scatter {count} {dtype}"
        self._run(
            what,
            send,
            self.size * count,
            receive,
            count,
            dtype,
            lambda parts: values.sums([p[own] for p in parts], dtype),
        )

    def broadcast(self, memory: Memory, count: int, dtype: str, root: int) -> None:
        """Everyone brings its values, root's are taken."""
        if not 0 <= root < self.size:
            raise WorkerError(f"broadcast: there is no rank {root} of {self.size}", where=_WHERE)
        what = f"broadcast {count} {dtype} from {root}"
        self._run(what, memory, count, memory, count, dtype, lambda parts: parts[root])

    def barrier(self) -> None:
        """Bring nothing."""
        self._group.exchange(self.rank, "barrier", b"")

    def _run(
        self, what: str, send: Memory, sent: int, receive: Memory, received: int, dtype: str,
        result: Callable[[Sequence[bytes]], bytes],
    ) -> None:  # fmt: skip
        source, target = values.of(send, sent, dtype), values.of(receive, received, dtype)
        target[:] = result(self._group.exchange(self.rank, what, source.tobytes()))
