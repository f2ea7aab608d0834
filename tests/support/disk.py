"""A disk on which little can be written."""

import resource
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def small_disk(most: int = 64) -> Iterator[None]:
    """No file may have more bytes than these."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
