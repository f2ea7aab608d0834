"""Stand-ins for what a plugin requires: the least that keeps each contract, so that one plugin runs alone."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pih_runtime.contracts import Context, Piece, Reply, Request
from pih_runtime.errors import WorkerError
from pih_runtime.isa import ISA_FLAGS, cpu_flags
from pih_runtime.plan import Plan
from pih_runtime.step import Step

_BUDGET = ("weights", "kv", "activations", "spill", "host", "device", "device_limit")


class Host:
    """platform.host: two threads of this machine."""

    threads, memory_bytes = 2, 1 << 30

    def __init__(self) -> None:
        flags = cpu_flags(Path("/proc/cpuinfo").read_text())
        self.isa = frozenset(name for name, needed in ISA_FLAGS.items() if needed <= flags)


class Weights:
    """storage.weights: bytes at 64-byte boundaries. fail_at: the so-manieth tensor cannot be had, 0 for none."""

    def __init__(self, stored: Mapping[str, bytes], fail_at: int = 0) -> None:
        self._stored = {name: aligned(data) for name, data in stored.items()}
        self._left = fail_at

    def tensor(self, name: str) -> memoryview:
        """The bytes of one tensor."""
        self._left -= 1
        if self._left == 0:
            raise WorkerError("made to fail: this tensor cannot be had")
        return self._stored[name]

    def unchecked(self, name: str) -> memoryview:
        """The same."""
        return self.tensor(name)

    def check(self, names: Iterable[str]) -> None:
        """They are right: there need only be such tensors."""
        for name in names:
            if name not in self._stored:
                raise WorkerError(f"there is no tensor {name!r}")


class Backend:
    """backend.device: the id after the last one is always sampled."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self._last: Step | None = None

    def submit(self, step: Step) -> object:
        """Nothing runs."""
        self._last = step
        return step

    def wait(self, ticket: object) -> list[int]:
        """For each wanted row the id after its own."""
        assert isinstance(ticket, Step)
        return [(max(ticket.ids[row], 0) + 1) % self.plan.vocab for row in ticket.rows]

    def logits(self) -> list[memoryview[float]]:
        """Zeros."""
        rows = len(self._last.rows) if self._last else 0
        return [memoryview(array("f", bytes(4 * self.plan.vocab))) for _ in range(rows)]


class Pool:
    """memory.pages. Prefixes of whole pages are found again where `reuse` is set, as long as nobody needs the page."""

    page_size = 16

    def __init__(self, pages: int = 16, *, reuse: bool = False) -> None:
        self.pages_total = pages
        self._reuse = reuse
        self._users = dict.fromkeys(range(pages), 0)  # those that were given back last come last
        self._known: dict[int, tuple[int, ...]] = {}  # page -> all ids up to its end
        self._held: dict[int, list[int]] = {}

    def pages_free(self) -> int:
        """Those that nobody has. Any thread may ask."""
        return list(self._users.values()).count(0)

    def begin(self, key: int, ids: Sequence[int]) -> int:
        """The pages of the longest prefix that is known."""
        held = self._held[key] = []
        for end in range(self.page_size, len(ids), self.page_size):
            page = next((page for page, known in self._known.items() if known == tuple(ids[:end])), None)
            if page is None:
                break
            self._users[page] += 1
            held.append(page)
        return len(held) * self.page_size

    def grow(self, key: int, length: int) -> bool:
        """As far as the pages reach."""
        held = self._held[key]
        missing = max(0, -(-length // self.page_size) - len(held))
        free = [page for page, users in self._users.items() if not users]
        if missing > len(free):
            return False
        for page in free[:missing]:
            self._known.pop(page, None)
            self._users[page] = 1
            held.append(page)
        return True

    def pages(self, key: int) -> Sequence[int]:
        """In the order in which they were taken."""
        return self._held[key]

    def computed(self, key: int, ids: Sequence[int]) -> None:
        """Full pages are known from now on."""
        if self._reuse:
            ends = range(self.page_size, len(ids) + 1, self.page_size)
            self._known |= {page: tuple(ids[:end]) for page, end in zip(self._held[key], ends, strict=False)}

    def end(self, key: int) -> None:
        """Its pages are free."""
        for page in reversed(self._held.pop(key)):
            self._users[page] = (users := self._users.pop(page)) - 1
            assert users > 0


class _Stream:
    def push(self, token: int) -> str:
        return chr(token % 26 + 97)

    def flush(self) -> str:
        return ""


class Text:
    """model.text: a letter is a token."""

    stop_ids: frozenset[int] = frozenset({31})  # no letter has it
    defaults: Mapping[str, Any] = {"temperature": 0.25}

    def encode(self, text: str, _most: int) -> list[int]:
        """One id for each letter."""
        return [ord(letter) % 26 for letter in text]

    def stream(self) -> _Stream:
        """The way back."""
        return _Stream()

    def chat(self, messages: Sequence[Mapping[str, Any]], _options: Mapping[str, Any], most: int) -> list[int]:
        """All contents, one after the other."""
        return self.encode("".join(str(message["content"]) for message in messages), most)


class Engine:
    """execution.engine: every answer is 'ok'."""

    context = 64

    def generate(self, _request: Request, deliver: Callable[[Piece], None]) -> Callable[[], None]:
        """Answer at once."""
        deliver(Piece("ok", 1, 0, "stop"))
        return lambda: None

    def metrics(self) -> Iterator[tuple[str, str, str, float]]:
        """None."""
        return iter(())

    def drain(self) -> None:
        """Nothing runs."""


class Http:
    """surface.http: keeps what is routed."""

    def __init__(self) -> None:
        self.pages: dict[str, Callable[[], Reply]] = {}

    def route(self, path: str, answer: Callable[[], Reply]) -> None:
        """Serve a page."""
        self.pages[path] = answer


def providers(plan: Plan, stored: Mapping[str, bytes], fail_at: int = 0) -> dict[str, Any]:
    """A stand-in for each capability that is reached in the worker."""
    return {
        "platform.host": Host(),
        "storage.weights": Weights(stored, fail_at),
        "backend.device": Backend(plan),
        "memory.pages": Pool(),
        "model.text": Text(),
        "execution.engine": Engine(),
        "surface.http": Http(),
    }


def context(
    root: Path,
    isa: str,
    requires: Sequence[str],
    served: Mapping[str, Any],
    broken: str = "",
    log: list[str] | None = None,
) -> Context:
    """A worker's context. broken: the capability whose provider cannot be had."""

    def provider(capability: str) -> Any:
        if capability not in requires:
            raise WorkerError(f"asks for {capability}, which its plugin.toml does not require")
        if capability == broken:
            raise WorkerError(f"made to fail: {capability} cannot be had")
        if capability not in served:
            raise WorkerError(f"asks for {capability}, which the build served")
        return served[capability]

    lock = {
        "target": {"os": "linux", "arch": "x86_64", "isa": isa, "threads": 2, "memory_bytes": 1 << 30},
        "service": {"host": "127.0.0.1", "port": 0, "model_name": "conformance"},
        "budget": {**dict.fromkeys(_BUDGET, 0), "total": 1, "limit": 1 << 30},
        "weights": {"delivery": "embed", "verify": "start", "digest": ""},
        "pih": "0",
        "profile": {"name": "conformance"},
        "plan": {"sha256": "0" * 64, "calls": 0},
        "fallbacks": [],
    }
    lines: list[str] = [] if log is None else log
    return Context(root, {}, lock, "127.0.0.1:0", provider, lines.append, lambda: True, _failed)


def _failed(problem: BaseException) -> None:
    raise WorkerError("the plugin ended the worker") from problem


def aligned(data: bytes) -> memoryview:
    """A read-only copy that starts on 64 bytes."""
    memory = bytearray(len(data) + 64)
    import ctypes

    start = -ctypes.addressof(ctypes.c_char.from_buffer(memory)) % 64
    memory[start : start + len(data)] = data
    return memoryview(memory).toreadonly()[start : start + len(data)]
