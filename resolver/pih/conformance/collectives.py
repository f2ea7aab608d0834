"""What a transport must keep to: each operation's values and order, equal bits, refusals, and `abort`.

A transport whose memory is not the host's is tried where its device is, with its backend; here it is skipped.
"""

from __future__ import annotations

import random
import struct
import threading
from array import array
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from pih.conformance.findings import BrokenError, Named, SkippedError
from pih.conformance.formats import bf16, bf16_bits, f32
from pih.conformance.subject import Subject, stop
from pih_runtime.contracts import Rank, Transport
from pih_runtime.errors import PihError, described
from pih_runtime.plan import DTYPE_BYTES

_SECONDS = 5.0
_ROUNDS = 30
_SIZES = (1, 2, 3)
_STEP = {"f32": 2.0**-23, "bf16": 2.0**-8, "f16": 2.0**-10, "i32": 0.0}  # between 1 and the next value

Make = Callable[[int], Transport]
Values = Sequence[float]
Found = list[bytes | BaseException | None]


def checks(subject: Subject) -> Iterator[Named]:
    """Each in groups of one to three ranks, on threads."""
    for name, action in CHECKS.items():
        yield f"collective: {name}", partial(action, partial(_started, subject))


def gathers(make: Make) -> None:
    """In order of rank, over and over: none may overtake."""
    for size, dtype in _each(make):
        ranks = _join(make(size))
        for number in range(_ROUNDS):
            given = [_values(size, rank + number, dtype, 3) for rank in range(size)]
            wanted = _stored([value for part in given for value in part], dtype)
            found = _all(ranks, lambda rank, given=given: _gathered(rank, given[rank.rank], dtype))  # type: ignore[misc] # noqa: B023
            _same(found, wanted, f"all_gather of {dtype}, {size} ranks, round {number}")


def reduces(make: Make) -> None:
    """Sums within the type's rounding; every rank the same bits, and again the same; in place too."""
    for size, dtype in _each(make):
        if dtype == "u8":
            continue
        ranks = _join(make(size))
        given = [_values(size, rank, dtype, 5) for rank in range(size)]
        first = _all(ranks, lambda rank: _reduced(rank, given[rank.rank], dtype))  # noqa: B023
        _sums(first, given, dtype, f"all_reduce of {dtype}, {size} ranks")
        again = _all(ranks, lambda rank: _reduced(rank, given[rank.rank], dtype, in_place=True))  # noqa: B023
        if again != first:
            raise BrokenError(f"all_reduce of {dtype}: in place and again the same values give other bits")


def rounds(make: Make) -> None:
    """Where the order of adding shows, every rank has the same bits."""
    ranks = _join(make(3))
    large = ([1e8, 3.0], [1.0, 1e-9], [-1e8, -3.0])
    found = _all(ranks, lambda rank: _reduced(rank, large[rank.rank], "f32"))
    if len(set(map(repr, found))) != 1:
        raise BrokenError(f"all_reduce: ranks get different bits: {found}")


def scatters(make: Make) -> None:
    """Each rank the sums of its own share."""
    for size, dtype in _each(make):
        if dtype == "u8":
            continue
        ranks = _join(make(size))
        given = [_values(size, rank, dtype, 2 * size) for rank in range(size)]
        found = _all(ranks, lambda rank: _scattered(rank, given[rank.rank], 2, dtype))  # noqa: B023
        for rank, item in enumerate(found):
            own = [part[2 * rank : 2 * rank + 2] for part in given]
            _sums([item], own, dtype, f"reduce_scatter of {dtype}, rank {rank} of {size}")


def broadcasts(make: Make) -> None:
    """Every rank has the root's values, whoever that is."""
    for size, dtype in _each(make):
        ranks = _join(make(size))
        for root in range(size):
            given = [_values(size, rank, dtype, 4) for rank in range(size)]
            found = _all(ranks, lambda rank, root=root, given=given: _broadcast(rank, given[rank.rank], dtype, root))  # type: ignore[misc] # noqa: B023
            _same(found, _stored(given[root], dtype), f"broadcast of {dtype} from {root} of {size}")


def waits(make: Make) -> None:
    """Nobody leaves a barrier before everyone has come."""
    ranks, late = _join(make(2)), threading.Event()

    def run(rank: Rank) -> bytes:
        if rank.rank:
            threading.Event().wait(0.1)
            late.set()
        rank.barrier()
        return b"after" if late.is_set() else b"before"

    _same(_all(ranks, run), b"after", "barrier")


def refuses(make: Make) -> None:
    """What cannot be done is a WorkerError before the other ranks are waited for."""
    transport = make(2)
    one = transport.join(0)
    memory = memoryview(array("f", [0.0] * 4))
    bad: dict[str, Callable[[], object]] = {
        "a dtype that there is not": lambda: one.all_reduce(memory, memory, 1, "f12"),
        "memory of too few values": lambda: one.all_gather(memory, memory, 3, "f32"),
        "a root that there is not": lambda: one.broadcast(memory, 1, "f32", 2),
        "a rank that there is not": lambda: transport.join(2),
        "a rank that has joined": lambda: transport.join(0),
    }
    for what, action in bad.items():
        (found,) = _all([one], lambda _, action=action: action() or b"")  # type: ignore[misc]
        if not isinstance(found, PihError):
            raise BrokenError(f"{what} is not refused with a WorkerError: {_told(found)}")


def aborts(make: Make) -> None:
    """A rank that fails leaves none waiting and none with a result, now and later, and its reason is told."""
    transport = make(2)
    ranks = _join(transport)

    def run(rank: Rank) -> bytes:
        if rank.rank:
            transport.abort("rank 1 ran out of memory")
        return _gathered(rank, [1.0], "f32")

    for when in ("waits", "comes later"):
        for item in _all(ranks, run):
            if not isinstance(item, PihError) or "rank 1 ran out of memory" not in str(item):
                raise BrokenError(f"abort: a rank that {when} gets {_told(item)}, not a WorkerError with the reason")


def stops(make: Make) -> None:
    """Who still waits when the transport stops is told."""
    transport = make(2)
    (one, _) = _join(transport)
    timer = threading.Timer(0.1, lambda: stop(transport))
    timer.start()
    (found,) = _all([one], lambda rank: _gathered(rank, [1.0], "f32"))
    timer.join()
    if not isinstance(found, PihError):
        raise BrokenError(f"stop: a rank that waits gets {_told(found)}, not a WorkerError")


CHECKS: dict[str, Callable[[Make], None]] = {
    "equal bits": rounds,
    "all_gather": gathers,
    "all_reduce": reduces,
    "reduce_scatter": scatters,
    "broadcast": broadcasts,
    "barrier": waits,
    "refusals": refuses,
    "abort": aborts,
    "stop": stops,
}


def _started(subject: Subject, size: int) -> Transport:
    """A transport of as many ranks, as a lock with so many devices starts it."""
    context = subject.context()
    devices = {"count": size, "sm": "", "memory_bytes": 1 << 28, "driver": ""}
    lock = {**context.lock, "target": {**context.lock["target"], "device": devices}}
    transport: Transport = subject.start(lock=lock)
    if transport.size != size:
        raise BrokenError(f"a deployment of {size} ranks has a transport of {transport.size}")
    if transport.memory != "host":
        raise SkippedError(f"its ranks exchange memory of {transport.memory}: to be tried there, with its backend")
    return transport


def _each(make: Make) -> Iterator[tuple[int, str]]:
    """Every size and dtype."""
    dtypes = make(1).dtypes
    unknown = sorted(dtypes - DTYPE_BYTES.keys())
    if unknown or "f32" not in dtypes:
        raise BrokenError(f"dtypes are {', '.join(sorted(dtypes))}: f32 must be among them, and only what plans name")
    for size in _SIZES:
        for dtype in sorted(dtypes):
            yield size, dtype


def _join(transport: Transport) -> list[Rank]:
    found: list[Rank] = []

    def join(rank: int) -> None:
        found.append(transport.join(rank))

    threads = [threading.Thread(target=join, args=(rank,), daemon=True) for rank in range(transport.size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(_SECONDS)
    if sorted((rank.rank, rank.size) for rank in found) != [(n, transport.size) for n in range(transport.size)]:
        raise BrokenError(f"{transport.size} ranks do not all join as what they are")
    return sorted(found, key=lambda rank: rank.rank)


def _gathered(rank: Rank, values: Values, dtype: str) -> bytes:
    whole = bytearray(rank.size * len(values) * DTYPE_BYTES[dtype])
    rank.all_gather(memoryview(_stored(values, dtype)), memoryview(whole), len(values), dtype)
    return bytes(whole)


def _reduced(rank: Rank, values: Values, dtype: str, *, in_place: bool = False) -> bytes:
    own = bytearray(_stored(values, dtype))
    result = own if in_place else bytearray(len(own))
    rank.all_reduce(memoryview(own), memoryview(result), len(values), dtype)
    return bytes(result)


def _scattered(rank: Rank, values: Values, count: int, dtype: str) -> bytes:
    result = bytearray(count * DTYPE_BYTES[dtype])
    rank.reduce_scatter(memoryview(_stored(values, dtype)), memoryview(result), count, dtype)
    return bytes(result)


def _broadcast(rank: Rank, values: Values, dtype: str, root: int) -> bytes:
    own = bytearray(_stored(values, dtype))
    rank.broadcast(memoryview(own), len(values), dtype, root)
    return bytes(own)


def _values(size: int, seed: int, dtype: str, count: int) -> Values:
    """Made-up values that the type holds exactly."""
    rng = random.Random(seed * 31 + size)  # noqa: S311 - test data
    if dtype in ("i32", "u8"):
        return [rng.randint(0, 99) - (50 if dtype == "i32" else 0) for _ in range(count)]
    return _read(_stored([rng.gauss(0, 1) for _ in range(count)], dtype), dtype)


def _stored(values: Values, dtype: str) -> bytes:
    if dtype == "bf16":
        return array("H", map(bf16_bits, values)).tobytes()
    if dtype == "f16":
        return struct.pack(f"<{len(values)}e", *values)
    if dtype == "f32":
        return array("f", map(f32, values)).tobytes()
    return array({"i32": "i", "u8": "B"}[dtype], map(int, values)).tobytes()


def _read(raw: bytes, dtype: str) -> Values:
    if dtype == "bf16":
        return [bf16(struct.unpack("<f", struct.pack("<I", half << 16))[0]) for half in array("H", raw)]
    if dtype == "f16":
        return struct.unpack(f"<{len(raw) // 2}e", raw)
    return array({"f32": "f", "i32": "i", "u8": "B"}[dtype], raw).tolist()


def _sums(found: Found, given: Sequence[Values], dtype: str, what: str) -> None:
    """All the same bits, and those of the sum but for the type's own rounding."""
    for rank, item in enumerate(found):
        if not isinstance(item, bytes) or item != found[0]:
            raise BrokenError(f"{what}: rank {rank} gets {_told(item)}, not what rank 0 gets")
    for got, column in zip(_read(found[0], dtype), zip(*given, strict=True), strict=True):  # type: ignore[arg-type]
        allowed = len(column) * _STEP[dtype] * sum(map(abs, column))
        if abs(got - sum(column)) > allowed:
            raise BrokenError(f"{what}: {got!r} is not the sum of {column}")


def _same(found: Found, wanted: bytes, what: str) -> None:
    for rank, item in enumerate(found):
        if item != wanted:
            raise BrokenError(f"{what}: rank {rank} gets {_told(item)}, not {wanted!r}")


def _told(item: object) -> str:
    return described(item) if isinstance(item, BaseException) else repr(item)


def _all(ranks: Sequence[Rank], action: Callable[[Rank], bytes]) -> Found:
    """What each rank's call returns or raises; each on a thread of its own."""
    found: Found = [None] * len(ranks)

    def run(index: int) -> None:
        try:
            found[index] = action(ranks[index])
        except Exception as problem:  # noqa: BLE001 - the finding
            found[index] = problem

    threads = [threading.Thread(target=run, args=(index,), daemon=True) for index in range(len(ranks))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(_SECONDS)
    if any(thread.is_alive() for thread in threads):
        raise BrokenError(f"a rank of {len(ranks)} does not return")
    return found
