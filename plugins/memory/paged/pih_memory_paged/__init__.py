"""memory.pages over the backend's cache groups: one page table for all of them."""

from __future__ import annotations

from pih_memory_paged.pool import PagedPool
from pih_runtime.contracts import Backend, Context
from pih_runtime.errors import WorkerError

__all__ = ["PagedPool", "start"]


def start(context: Context) -> PagedPool:
    """A pool as large as the plan's caches; all groups share page numbers, so all must have the same pages."""
    backend: Backend = context.provider("backend.device")
    shapes = {(cache.pages, cache.page_size) for cache in backend.plan.caches}
    if len(shapes) != 1:
        raise WorkerError(
            f"cache groups have {sorted(shapes)} (pages, page size); this pool serves one shape",
            where="plan.json",
            fix="build with another memory plugin",
        )
    ((pages, page_size),) = shapes
    context.log(f"cache pages={pages} of {page_size} positions, {backend.plan.cache_bytes} bytes")
    return PagedPool(pages, page_size)
