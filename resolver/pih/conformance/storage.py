"""Kind storage: tensors as they were packed; a file that is not what the bundle says is refused before any is read."""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import accumulate, product
from typing import Any

from pih.conformance import bundles
from pih.conformance.findings import BrokenError, Named
from pih.conformance.subject import Subject, running, stop
from pih_runtime import digests
from pih_runtime.errors import PihError, SealError
from pih_runtime.plan import Plan, Weight

_STORED = {"w0": bytes(range(256)), "w1": bytes(range(255, -1, -1)) * 2}
# Chunks of 4 KiB: tensors that share one with another, that fill several, and two of one size.
_LARGE = {f"m{n}": random.Random(n).randbytes(size) for n, size in enumerate((9000, 9000, 5000))}  # noqa: S311 - test data
_MANY = tuple(Weight(name, (len(data) // 4,), "f32", "rows", len(data)) for name, data in _LARGE.items())
_WAYS = tuple(product(("embed", "separate"), ("start", "first-use")))  # delivery and verify, as locks have them
_SECONDS = 8.0  # in which a change must be told
_WEIGHTS = tuple(Weight(name, (len(data) // 4,), "f32", "rows", len(data)) for name, data in _STORED.items())


def checks(subject: Subject) -> Iterator[Named]:
    """Bytes, lifetimes, digest, header."""
    yield "weights: tensors as they were packed", partial(_served, subject)
    for delivery, verify in _WAYS:
        way = f"{delivery}, {verify}"
        yield f"weights: served as they were packed ({way})", partial(_whole, subject, delivery, verify)
        yield (
            f"weights: one bit that is not the sealed one is refused ({way})",
            partial(_bits, subject, delivery, verify),
        )
    yield "weights: names that changed places are refused", partial(_names, subject)
    yield "weights: digests that nobody vouches for are refused", partial(_digests, subject)
    yield "weights: what is changed while it is in use is told", partial(_changed, subject)
    for what, damage in _DAMAGES.items():
        yield f"weights: {what} is refused", partial(_damaged, subject, what, damage)


def _plan(subject: Subject) -> Plan:
    return replace(subject.plan, weights=_WEIGHTS, calls=())


def _served(subject: Subject) -> None:
    """In any order, several at once, and for as long as it runs; what is not there is an error."""
    with running(subject, plan=_plan(subject), stored=_STORED) as weights:
        views = {name: weights.tensor(name) for name in ("w1", "w0", "w1")}
        for name, view in views.items():
            if bytes(view) != _STORED[name] or bytes(weights.tensor(name)) != _STORED[name]:
                raise BrokenError(f"tensor {name} has other bytes than the file")
        try:
            weights.tensor("no such tensor")
        except PihError:
            return
        raise BrokenError("a tensor that is not there is no error")


def _large(subject: Subject, delivery: str, raw: bytes | None = None, table: bytes | None = None) -> str:
    """Write weights of many chunks, a whole one of them header; returns the digest of their table.

    raw, table: what lies there instead. bundle.json lists what was packed.
    """
    plan = replace(subject.plan, weights=_MANY, calls=())
    packed = _packed()
    right = digests.to_text(digests.table_of(memoryview(packed), digests.SMALLEST))
    bundles.write(subject.root, plan, _LARGE, {bundles.WEIGHTS: packed, "weights.digests": right})
    beside = subject.root / "weights" / "weights.digests"
    beside.unlink(missing_ok=True)
    (subject.root / bundles.WEIGHTS).write_bytes(packed if raw is None else raw)
    place = subject.root / "weights.digests" if delivery == "embed" else beside
    place.write_bytes(right if table is None else table)
    return digests.root(right)


def _packed() -> bytes:
    ends = list(accumulate((len(data) for data in _LARGE.values()), initial=0))
    header = {
        name: {"dtype": "U8", "shape": [len(data)], "data_offsets": [start, start + len(data)]}
        for (name, data), start in zip(_LARGE.items(), ends, strict=False)
    }
    return bundles.framed({"__metadata__": {"pad": " " * 2 * digests.SMALLEST}, **header}, b"".join(_LARGE.values()))


def _start(subject: Subject, delivery: str, verify: str, pin: str, **how: Any) -> Any:
    """As a worker with such a lock does, over what lies there."""
    lock = subject.context().lock
    weights = {"delivery": delivery, "verify": verify, "digest": pin if delivery == "separate" else ""}
    return subject.call(subject.context(lock={**lock, "weights": weights}, **how))


def _whole(subject: Subject, delivery: str, verify: str) -> None:
    """Whole, checked in any order and more than once; the bytes before their check are the same ones."""
    pin = _large(subject, delivery)
    weights = _start(subject, delivery, verify, pin)
    try:
        weights.check(["m2", "m0"])
        for name, data in _LARGE.items():
            if bytes(weights.unchecked(name)) != data or bytes(weights.tensor(name)) != data:
                raise BrokenError(f"tensor {name} has other bytes than the file")
        weights.check(_LARGE)
    finally:
        stop(weights)


def _bits(subject: Subject, delivery: str, verify: str) -> None:
    """In each chunk one: at start or, at the latest, when a tensor that it is part of is asked for or checked."""
    packed = _packed()
    data = len(packed) - sum(map(len, _LARGE.values()))
    for at in (data - digests.SMALLEST, *range(data, len(packed), digests.SMALLEST), len(packed) - 1):
        raw = bytearray(packed)
        raw[at] ^= 1
        pin = _large(subject, delivery, bytes(raw))
        starts = list(accumulate(map(len, _LARGE.values()), initial=data))
        inside = [name for name, start in zip(_LARGE, starts, strict=False) if start <= at < start + len(_LARGE[name])]
        for ask in ("tensor", "check"):
            _sealed(subject, delivery, verify, pin, inside or list(_LARGE), ask, f"a file whose byte {at} is another")


def _sealed(subject: Subject, delivery: str, verify: str, pin: str, names: Sequence[str], ask: str, what: str) -> None:
    """SealError, whose exit code is that of deceit or damage; every later question has it too."""
    try:
        weights = _start(subject, delivery, verify, pin)
    except SealError:
        return
    others = [name for name in _LARGE if name not in names]
    try:
        for _ in range(3):
            for name in names:
                try:
                    weights.check([*others, name]) if ask == "check" else weights.tensor(name)
                except SealError:
                    continue
                raise BrokenError(f"{what} is served by `{ask}` ({delivery}, {verify})")
    finally:
        stop(weights)


def _names(subject: Subject) -> None:
    """The header is part of what is sealed: tensors of one size keep their names."""
    raw = _packed().replace(b'"m0"', b'"m?"').replace(b'"m1"', b'"m0"').replace(b'"m?"', b'"m1"')
    for delivery, verify in _WAYS:
        pin = _large(subject, delivery, raw)
        _sealed(subject, delivery, verify, pin, ["m0"], "tensor", "a file whose tensors have changed names")


def _digests(subject: Subject) -> None:
    """A table of digests is believed for the list in the image, or the lock's pin, and never for itself."""
    raw = bytearray(_packed())
    raw[-1] ^= 1
    table = digests.to_text(digests.table_of(memoryview(raw), digests.SMALLEST))
    for delivery, verify in _WAYS:
        for what, other in (
            ("the digests of other weights", table),
            ("digests of a longer file", table.replace(b"\nsize ", b"\nsize 1")),
            ("no digests", b""),
        ):
            pin = _large(subject, delivery, bytes(raw), other)
            _sealed(subject, delivery, verify, pin, list(_LARGE), "tensor", what)
        pin = _large(subject, delivery)
        for path in (subject.root / "weights.digests", subject.root / "weights" / "weights.digests"):
            path.unlink(missing_ok=True)
        _sealed(subject, delivery, verify, pin, list(_LARGE), "tensor", "a file without the digests that are wanted")
    for change in (b"", b"more"):
        pin = _large(subject, "separate", _packed()[: -1 if not change else None] + change)
        _sealed(subject, "separate", "first-use", pin, ["m2"], "tensor", "a file of another length")


def _changed(subject: Subject) -> None:
    """The next check says so, or the worker is told, unless what is served is not the file any more."""
    pin, failed = _large(subject, "embed"), threading.Event()
    weights = _start(subject, "embed", "first-use", pin, fail=lambda _problem: failed.set())
    try:
        weights.check(["m0"])
        start = len(_packed()) - sum(map(len, _LARGE.values()))
        with (subject.root / bundles.WEIGHTS).open("r+b") as file:
            file.seek(start)
            file.write(bytes(len(_LARGE["m0"])))
        try:
            weights.check(["m2"])
        except SealError:
            return
        if bytes(weights.unchecked("m0")) != _LARGE["m0"] and not failed.wait(_SECONDS):
            raise BrokenError(f"weights were changed while they are in use, and nobody is told within {_SECONDS:g} s")
    finally:
        stop(weights)


def _damaged(subject: Subject, what: str, damage: Callable[[dict[str, Any], bytes], bytes]) -> None:
    """The bundle's list has the damaged file's own digest, so that the header's checks stand alone."""
    plan = _plan(subject)
    whole = bundles.safetensors(plan, _STORED)
    length = int.from_bytes(whole[:8], "little")
    raw = damage(json.loads(whole[8 : 8 + length]), whole[8 + length :])
    bundles.write(subject.root, plan, _STORED, {bundles.WEIGHTS: raw})
    _refused(subject, plan, what)


def _refused(subject: Subject, plan: Plan, what: str) -> None:
    try:
        weights = subject.call(subject.context(plan, _STORED))
    except PihError:
        return
    try:
        for name in _STORED:  # at the latest before bytes of it are used
            weights.tensor(name)
    except PihError:
        return
    finally:
        stop(weights)
    raise BrokenError(f"{what} is served")


def _with(name: str, **entry: Any) -> Callable[[dict[str, Any], bytes], bytes]:
    """A header whose tensor says something else."""
    return lambda header, data: bundles.framed({**header, name: {**header[name], **entry}}, data)


_DAMAGES: dict[str, Callable[[dict[str, Any], bytes], bytes]] = {
    "an empty file": lambda _header, _data: b"",
    "a header longer than the file": lambda _header, data: (1 << 40).to_bytes(8, "little") + data,
    "a header that is no JSON": lambda _header, data: (64).to_bytes(8, "little") + b"{" * 64 + data,
    "data cut short": lambda header, data: bundles.framed(header, data[:-16]),
    "offsets past the end": _with("w1", data_offsets=[256, 4096]),
    "offsets that overlap": _with("w1", data_offsets=[0, 512]),
    "offsets that run backwards": _with("w1", data_offsets=[768, 256]),
    "a negative offset": _with("w0", data_offsets=[-256, 0]),
    "a shape that does not fill its bytes": _with("w0", shape=[255]),
    "an unknown dtype": _with("w0", dtype="X8"),
    "a tensor laid over another": lambda header, data: bundles.framed(
        {**header, "_pad.0": {"dtype": "U8", "shape": [256], "data_offsets": [512, 768]}}, data
    ),
    "tensors of other lengths than the plan's": lambda _header, data: bundles.framed(
        {
            "w0": {"dtype": "U8", "shape": [384], "data_offsets": [0, 384]},
            "w1": {"dtype": "U8", "shape": [384], "data_offsets": [384, 768]},
        },
        data,
    ),
    "a tensor that is missing": lambda header, data: bundles.framed({"w0": header["w0"]}, data[:256]),
}
