"""Kind storage: tensors as they were packed; a file that is not what the bundle says is refused before any is read."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

from pih.conformance import bundles
from pih.conformance.findings import BrokenError, Named
from pih.conformance.subject import Subject, running, stop
from pih_runtime.errors import PihError
from pih_runtime.plan import Plan, Weight

_STORED = {"w0": bytes(range(256)), "w1": bytes(range(255, -1, -1)) * 2}
_WEIGHTS = tuple(Weight(name, (len(data) // 4,), "f32", "rows", len(data)) for name, data in _STORED.items())


def checks(subject: Subject) -> Iterator[Named]:
    """Bytes, lifetimes, digest, header."""
    yield "weights: tensors as they were packed", partial(_served, subject)
    yield "weights: one bit that is not the sealed one is refused", partial(_bit, subject)
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


def _bit(subject: Subject) -> None:
    plan = _plan(subject)
    bundles.write(subject.root, plan, _STORED)
    path = subject.root / bundles.WEIGHTS
    raw = bytearray(path.read_bytes())
    raw[-1] ^= 1
    path.write_bytes(raw)
    _refused(subject, plan, "a file whose digest is another")


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
