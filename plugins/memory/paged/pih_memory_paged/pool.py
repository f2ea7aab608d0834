"""Which cache pages belong to which sequence, with reuse of equal prefixes.

A page is in exactly one place: free (no content of use), idle (content of a known prefix, nobody's),
or in use by one sequence or more. Full pages are known by a hash chained over all ids up to their end, so
a page is found again only after the very same prefix. Idle pages are taken back least recently used first.
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field


@dataclass(slots=True)
class Holding:
    """One open sequence. known: leading pages whose prefix hash is computed; chain: the hash of the last of them."""

    pages: list[int] = field(default_factory=list)
    known: int = 0
    chain: bytes = b""


class PagedPool:
    """Serves memory.pages. Used by the engine's thread alone."""

    def __init__(self, pages: int, page_size: int) -> None:
        self.pages_total = pages
        self.page_size = page_size
        self._free = list(range(pages - 1, -1, -1))
        self._idle: dict[int, None] = {}  # least recently used first
        self._users = [0] * pages
        self._page_of: dict[bytes, int] = {}  # prefix hash -> its page
        self._hash_of: dict[int, bytes] = {}
        self._open: dict[int, Holding] = {}

    def pages_free(self) -> int:
        """Pages that `grow` can give: free and idle ones."""
        return len(self._free) + len(self._idle)

    def begin(self, key: int, ids: Sequence[int]) -> int:
        """Open sequence `key` with the cached pages of its longest known prefix; at least one id is left to compute."""
        if key in self._open:
            raise ValueError(f"sequence {key} is open")
        holding = self._open[key] = Holding()
        for chain in self._chains(holding, ids, (len(ids) - 1) // self.page_size):
            page = self._page_of.get(chain)
            if page is None:
                break
            self._idle.pop(page, None)
            self._users[page] += 1
            holding.pages.append(page)
            holding.known, holding.chain = holding.known + 1, chain
        return holding.known * self.page_size

    def grow(self, key: int, length: int) -> bool:
        """Give the sequence pages for `length` positions in all; False, and nothing taken, where there are too few."""
        holding = self._open[key]
        missing = -(-length // self.page_size) - len(holding.pages)
        if missing > self.pages_free():
            return False
        for _ in range(missing):
            page = self._free.pop() if self._free else self._evict()
            self._users[page] = 1
            holding.pages.append(page)
        return True

    def pages(self, key: int) -> Sequence[int]:
        """The sequence's pages in order of position."""
        return self._open[key].pages

    def computed(self, key: int, ids: Sequence[int]) -> None:
        """These ids, from position 0, are in the cache: their full pages may be reused from now on."""
        holding = self._open[key]
        for chain in self._chains(holding, ids, len(ids) // self.page_size):
            page = holding.pages[holding.known]
            if chain not in self._page_of:  # else another sequence computed the same: its page is the known one
                self._page_of[chain] = page
                self._hash_of[page] = chain
            holding.known, holding.chain = holding.known + 1, chain

    def end(self, key: int) -> None:
        """Close the sequence. Last pages become idle first: a prefix is of use without its ends, not the other way."""
        for page in reversed(self._open.pop(key).pages):
            self._users[page] -= 1
            if self._users[page] == 0:
                if page in self._hash_of:
                    self._idle[page] = None
                else:
                    self._free.append(page)

    def _chains(self, holding: Holding, ids: Sequence[int], pages: int) -> Iterator[bytes]:
        """Prefix hashes of the pages after `holding.known` up to `pages`."""
        chain = holding.chain
        for index in range(holding.known, pages):
            block = array("i", ids[index * self.page_size : (index + 1) * self.page_size])
            chain = hashlib.sha256(chain + block.tobytes()).digest()
            yield chain

    def _evict(self) -> int:
        page = next(iter(self._idle))
        del self._idle[page]
        del self._page_of[self._hash_of.pop(page)]
        return page
