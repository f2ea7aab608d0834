"""Memory for a backend: anonymous mappings, and the address of a buffer that others own."""

from __future__ import annotations

import ctypes
import mmap
from dataclasses import dataclass

from pih_runtime.errors import WorkerError

_ALIGNMENT = 64


@dataclass(frozen=True, slots=True)
class Region:
    """A zeroed private mapping, page aligned, in huge pages where the kernel grants them."""

    mapping: mmap.mmap
    address: int


def allocate(nbytes: int, purpose: str) -> Region:
    """Raises WorkerError where the host refuses."""
    try:
        mapping = mmap.mmap(-1, max(nbytes, 1), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except (OSError, OverflowError, ValueError) as problem:
        raise WorkerError(
            f"no memory for {purpose}: {nbytes} bytes refused ({problem})",
            fix="free memory on this host, or lock the profile with smaller limits",
        ) from problem
    try:
        mapping.madvise(mmap.MADV_HUGEPAGE)
    except OSError:
        # A kernel without transparent huge pages: the same memory in small pages.
        return Region(mapping, _address(mapping))
    return Region(mapping, _address(mapping))


def release(region: Region) -> None:
    """Give the mapping back; nobody may use its address any more."""
    region.mapping.close()


def _address(mapping: mmap.mmap) -> int:
    return ctypes.addressof(ctypes.c_char.from_buffer(mapping))


class _PyBuffer(ctypes.Structure):
    _fields_ = (
        ("buf", ctypes.c_void_p),
        ("obj", ctypes.py_object),
        ("len", ctypes.c_ssize_t),
        ("itemsize", ctypes.c_ssize_t),
        ("readonly", ctypes.c_int),
        ("ndim", ctypes.c_int),
        ("format", ctypes.c_char_p),
        ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("suboffsets", ctypes.c_void_p),
        ("internal", ctypes.c_void_p),
    )


def buffer_address(view: memoryview, nbytes: int, name: str) -> int:
    """Address of a read-only buffer, which ctypes itself will not give; the caller keeps `view` alive."""
    raw = _PyBuffer()
    ctypes.pythonapi.PyObject_GetBuffer(ctypes.py_object(view), ctypes.byref(raw), 0)
    try:
        if raw.len != nbytes:
            raise WorkerError(
                f"weight {name!r} has {raw.len} bytes, the plan says {nbytes}", fix="build the bundle again"
            )
        if raw.buf % _ALIGNMENT:
            raise WorkerError(f"weight {name!r} does not start on {_ALIGNMENT} bytes", fix="build the bundle again")
        return int(raw.buf)
    finally:
        ctypes.pythonapi.PyBuffer_Release(ctypes.byref(raw))
