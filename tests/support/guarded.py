"""Arrays between two guard pages: whoever reads or writes past their ends faults, or shows in the bytes beside them."""

import ctypes
import mmap

import numpy as np

PAGE = mmap.PAGESIZE
ALIGNMENT = 16  # the widest load of a kernel
_FILL = 0xFF  # as float32 and as bf16 a NaN
_libc = ctypes.CDLL(None, use_errno=True)


class Memory:
    """Arrays in pages of their own. `at_end`: each ends at its guard page, but for ALIGNMENT; else it begins at one."""

    def __init__(self, *, at_end=True):
        self.at_end = at_end
        self._held = []

    def array(self, values, dtype=None):
        """A copy of an array, in its shape; at least one byte of room."""
        values = np.ascontiguousarray(values, dtype)
        size = values.nbytes
        inside = -(-max(size, 1) // PAGE) * PAGE
        whole = np.frombuffer(mmap.mmap(-1, inside + 2 * PAGE), np.uint8)
        for guard in (whole.ctypes.data, whole.ctypes.data + PAGE + inside):
            assert _libc.mprotect(ctypes.c_void_p(guard), ctypes.c_size_t(PAGE), 0) == 0
        whole[PAGE : PAGE + inside] = _FILL
        start = PAGE + ((inside - size) // ALIGNMENT * ALIGNMENT if self.at_end else 0)
        view = whole[start : start + size].view(values.dtype).reshape(values.shape)
        view[...] = values
        self._held.append((whole[PAGE:start], whole[start + size : PAGE + inside]))
        return view

    def check(self):
        """No byte beside an array was written."""
        for before, after in self._held:
            assert (before == _FILL).all(), "a write before the first byte of an array"
            assert (after == _FILL).all(), "a write past the last byte of an array"
