"""Values as they lie in memory: weights as rows of float32, and one layer of a cache."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pih_runtime.errors import WorkerError
from pih_runtime.plan import DTYPE_BYTES, Cache, Weight

Row = memoryview | array
View = Sequence[Row]


def rows_of(weight: Weight, data: memoryview) -> View:
    """A weight's rows; a vector is one row."""
    if len(data) != weight.nbytes:
        raise WorkerError(f"weight {weight.name} has {len(data)} bytes, the plan says {weight.nbytes}", where="weights")
    columns = weight.shape[-1]
    if weight.format == "f32":
        values: Row = data.cast("f")
    elif weight.format == "bf16":
        values = widened(data)
    else:
        raise WorkerError(f"weight {weight.name} is {weight.format}, which the report does not name", where="plan")
    return [values[start : start + columns] for start in range(0, len(values), columns)]


def widened(data: bytes | memoryview) -> array:
    """bf16 as float32: it is the upper half."""
    wide, raw = bytearray(2 * len(data)), bytes(data)
    wide[2::4], wide[3::4] = raw[0::2], raw[1::2]
    return array("f", wide)


def narrowed(values: Iterable[float]) -> bytes:
    """float32 as bf16, rounded to nearest even."""
    bits = array("I", array("f", values).tobytes())
    return array("H", [bit + 0x7FFF + (bit >> 16 & 1) >> 16 & 0xFFFF for bit in bits]).tobytes()


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer of a cache group: [K,V][page][kv_head][place][head_dim]."""

    cache: Cache
    memory: memoryview
    layer: int

    def read(self, side: int, slot: int, head: int) -> array:
        """side: 0 keys, 1 values. slot: page * page_size + place."""
        start, stop = self._range(side, slot, head)
        raw = self.memory[start:stop]
        return widened(raw) if self.cache.dtype == "bf16" else array("f", raw.tobytes())

    def write(self, side: int, slot: int, head: int, values: Row) -> None:
        """Rounded to the cache's type."""
        start, stop = self._range(side, slot, head)
        self.memory[start:stop] = narrowed(values) if self.cache.dtype == "bf16" else array("f", values).tobytes()

    def _range(self, side: int, slot: int, head: int) -> tuple[int, int]:
        cache = self.cache
        page, place = divmod(slot, cache.page_size)
        row = ((self.layer * 2 + side) * cache.pages + page) * cache.kv_heads + head
        nbytes = cache.head_dim * DTYPE_BYTES[cache.dtype]
        start = (row * cache.page_size + place) * nbytes
        return start, start + nbytes
