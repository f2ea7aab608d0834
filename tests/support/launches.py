"""Single kernels of a CUDA pack on the software GPU, over numpy arrays, launched as backend/cuda launches them."""

import importlib
import sys
from dataclasses import dataclass

import numpy as np

from tests.support.guarded import Memory
from tests.support.program import ROOT
from tests.support.simgpu import Kernels

sys.path.insert(0, str(ROOT / "plugins/backend/cuda"))
abi = importlib.import_module("pih_backend_cuda.pack")

TOKENS, WANTED = 0, 2  # which of a step's counts are a call's rows
_INTS = ("ids", "positions", "seq_start", "page_table", "slots", "rows", "row_slots", "sampled")


@dataclass(frozen=True)
class Cache:
    """One layer of a cache: [K and V][page][kv head][the layout's values]."""

    values: np.ndarray


@dataclass(frozen=True)
class Placed(Cache):
    """One, or a weight, that is used where it lies: too large to copy between guard pages."""


@dataclass(frozen=True)
class Step:
    """A step's arrays, as sequences; what a kernel does not read may be left out. sampling: tuples."""

    tokens: int
    seqs: int = 1
    wanted: int = 0
    pages_per_seq: int = 0
    ids: object = ()
    positions: object = ()
    seq_start: object = ()
    page_table: object = ()
    slots: object = ()
    rows: object = ()
    row_slots: object = ()
    sampled: object = ()
    sampling: object = ()


class Launcher:
    """The kernels of one module. launches: symbol → entries, from the pack's pack.json."""

    def __init__(self, module, launches):
        self.kernels = Kernels(module, None)
        self.launches = launches

    def entries(self, symbol, rows):
        """Entries that can take so many rows; the first is the one that the launch table picks."""
        return [launch for launch in self.launches[symbol] if rows <= launch.most_rows]

    def run(self, launch, operands, step, *, axis=TOKENS, seed=1, at_end=True, spare=0, times=1, y=None):
        """Run an entry; gives (the operands, the sampled ids) as it left them. The caller's arrays stay as they are.

        An operand is an array of rows, a pair (rows, slice of columns), or a Cache. spare: rows and sequences that the
        grid has room for beyond the step's, as that of a captured launch has. times: launches over the same arrays, of
        which rows are as given before each.
        y: the range of the grid's blocks in y, all by default.
        """
        memory = Memory(at_end=at_end)
        call, views = abi.CCall(axis=axis), []
        for place, operand in zip(call.operand, operands, strict=False):
            views.append(_fill(place, operand, memory, views, operands))
        arrays = {name: memory.array(getattr(step, name), np.int32) for name in _INTS}
        sampling = memory.array(np.frombuffer(_sampling(step.sampling), np.uint8))
        scratch = memory.array(np.zeros(launch.scratch, np.float32))
        counts = memory.array([step.tokens, step.seqs, step.wanted, step.pages_per_seq], np.int32)
        named = {**arrays, "sampling": sampling, "scratch": scratch, "counts": counts}
        c_step = abi.CStep(**{name: array.ctypes.data for name, array in named.items()})
        rows = min((step.wanted if axis == WANTED else step.tokens) + spare, launch.most_rows)
        blocks = -(-rows // launch.rows_per_block) + launch.blocks_per_seq * (step.seqs + spare)
        y = y or range(launch.y)
        grid, first = (blocks, len(y), launch.z), (0, y.start, 0)
        for again in range(times):
            for held, operand in zip(views, operands, strict=True) if again else ():
                if not isinstance(operand, Cache):  # what the launch before wrote is not to pass for this one's
                    held[...] = operand[0] if isinstance(operand, tuple) else operand
            self.kernels.run(launch.entry, grid, launch.threads, call, c_step, seed, first)
        memory.check()
        return views, arrays["sampled"]


def read_launches(folder):
    """Symbol → entries of the pack in this folder."""
    return abi.read_pack(folder).launches


def _fill(place, operand, memory, views, operands):
    if isinstance(operand, Cache):
        held = operand.values if isinstance(operand, Placed) else memory.array(operand.values)
        place.data, place.stride = held.ctypes.data, held.strides[0]
        return held
    rows, columns = operand if isinstance(operand, tuple) else (operand, slice(None))
    # operands that are views of one array stay views of one array
    known = [
        i for i, other in enumerate(operands[: len(views)]) if (other[0] if isinstance(other, tuple) else other) is rows
    ]
    held = views[known[0]] if known else memory.array(rows)
    view = held[..., columns]
    place.data, place.columns = view.ctypes.data, view.shape[-1]
    place.stride = view.strides[0] if view.ndim > 1 else 0
    return held


def _sampling(items):
    raw = (abi.CSampling * max(len(items), 1))()
    for place, item in zip(raw, items, strict=False):
        place.temperature, place.top_k, place.top_p, place.min_p, place.seed = item
    return raw
