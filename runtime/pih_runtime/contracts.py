"""What the plugins of a worker give one another: one protocol for each capability.

A plugin's runtime entry is a function `start(context) -> provider`. The provider object
serves every capability that its plugin.toml `provides`; it may have `stop()`, called once,
in reverse order of starting. It reaches others only through `context.provider(capability)`,
and only for the capabilities that its plugin.toml `requires`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from pih_runtime.errors import WorkerError
from pih_runtime.plan import Plan
from pih_runtime.step import Sampling, Step


def ranks_of(lock: Mapping[str, Any]) -> int:
    """Ranks of a lock's deployment: one for each device, one without."""
    count: int = (lock["target"].get("device") or {"count": 1})["count"]
    return count


@dataclass(frozen=True, slots=True)
class Context:
    """What a plugin is given at start.

    root: the bundle's /pih. settings: this plugin's own settings, from the lock.
    lock: the whole lock as parsed. log: one line for operators. ready: is the worker serving?
    listen: 'HOST:PORT' or 'unix:PATH'. fail: end the worker with this first cause (any thread).
    rank: of the deployment's `ranks`, the one that is computed here.
    """

    root: Path
    settings: Mapping[str, Any]
    lock: Mapping[str, Any]
    listen: str
    provider: Callable[[str], Any]
    log: Callable[[str], None]
    ready: Callable[[], bool]
    fail: Callable[[BaseException], None]
    rank: int = 0

    @property
    def ranks(self) -> int:
        """How many there are: as many as devices."""
        return ranks_of(self.lock)

    def served(self, capability: str) -> bool:
        """Is there a plugin for it? To be asked for what this one's plugin.toml has as optional."""
        return any(capability in plugin["provides"] for plugin in self.lock["plugins"])

    def counts(self, **otherwise: int) -> dict[str, int]:
        """The settings of a plugin whose settings are all whole numbers from 1, with what holds where one is not said.

        WorkerError for any other value or name, so that a wrong lock ends the start and not a request.
        """
        for name, value in self.settings.items():
            if name not in otherwise:
                known = ", ".join(otherwise)
                raise WorkerError(f"unknown setting {name!r}", where="lock.json", fix=f"settings are: {known}")
            if type(value) is not int or value < 1:
                raise WorkerError(f"setting {name} must be a whole number from 1, not {value!r:.60}", where="lock.json")
        return {**otherwise, **self.settings}


class Host(Protocol):
    """platform.host: what this machine is, against what the lock asks."""

    threads: int  # threads to compute with: the lock's, at most the CPUs this process may use
    memory_bytes: int  # what the process may use: the cgroup's limit or the machine's memory
    isa: frozenset[str]  # the ISA levels this CPU has, e.g. {'x86-64-v3', ...}


class Weights(Protocol):
    """storage.weights: memory-mapped tensors by name, each verified before anyone computes with it."""

    def tensor(self, name: str) -> memoryview:
        """The bytes of one tensor, verified now if they were not; valid until stop."""

    def unchecked(self, name: str) -> memoryview:
        """The same bytes without reading them, for a backend that only takes their address at start.

        Nothing may compute with them before `check` has returned for this tensor.
        """

    def check(self, names: Iterable[str]) -> None:
        """Verify these tensors, those that are not yet; SealError ends the worker (exit 8). Any thread may call it.

        A backend that has called it for every tensor of its plan need not call it again.
        """


class Backend(Protocol):
    """backend.device: owns buffers and caches, runs the plan with its kernel pack."""

    plan: Plan

    def submit(self, step: Step) -> object:
        """Start a step; at most two are in flight. WorkerError for a third, past the plan's limits and after `stop`."""

    def wait(self, ticket: object) -> list[int]:
        """The sampled id of each wanted row, in order. A ticket is good once: WorkerError afterwards."""

    def logits(self) -> list[memoryview[float]]:
        """Logits of the wanted rows of the last finished step, each [V] float32; none after `stop`."""


class GraphDriver(Protocol):
    """A device's driver, whose functions are called by name; a refusal is a WorkerError."""

    def declare(self, functions: Mapping[str, tuple[Any, ...]]) -> None:
        """Functions that are about to be called, with the ctypes of their arguments; WorkerError if it has them not."""

    def __call__(self, name: str, *arguments: Any) -> None:
        """Call one."""


class GraphDevice(Protocol):
    """What a backend hands over of its device. stream: where its steps are queued."""

    driver: GraphDriver
    stream: Any

    def hold(self, function: str, *arguments: Any) -> None:
        """Call a function of the driver when the device is given back."""


class Replay(Protocol):
    """Recorded steps of decodes."""

    def __call__(self, step: Step) -> bool:
        """Queue a step whose arrays are where they always are; False, and nothing queued, if it was not recorded."""


class Graphs(Protocol):
    """backend.graphs: the launches of steps in which each sequence decodes one token, replayed as one."""

    def record(self, device: GraphDevice, most: int, queue: Callable[[int], None]) -> Replay:
        """Record steps of up to `most` sequences. queue: queues the launches of a step of so many, not its copies."""


Memory = memoryview | int  # in host memory, contiguous; or an address in the device's


class Rank(Protocol):
    """One rank's end of its group, for one thread at a time.

    Every rank calls the same operations in the same order, with the same count, dtype and root; what they call
    unlike may be an error on all or on none. A call returns once its result is in memory, or, on a device, once it is
    queued on the stream that `join` was given. Values lie without gaps; `send` and `receive` are the same memory or
    do not overlap. Every rank gets the same bits, and gets them again from the same values.

    WorkerError where the transport has no such dtype, the memory holds fewer values or there is no such root, before
    anything is exchanged; and with the reason of `abort` in every call that waits or comes after it. A rank that
    fails in any other way must abort, or the others wait for it.
    """

    rank: int
    size: int

    def all_reduce(self, send: Memory, receive: Memory, count: int, dtype: str) -> None:
        """The sum over ranks of each of `count` values; 16-bit types may be rounded after each addition."""

    def all_gather(self, send: Memory, receive: Memory, count: int, dtype: str) -> None:
        """`count` values of each rank, in order of rank: size * count in `receive`."""

    def reduce_scatter(self, send: Memory, receive: Memory, count: int, dtype: str) -> None:
        """Of the sums of size * count values, rank r's `count` from r * count on."""

    def broadcast(self, memory: Memory, count: int, dtype: str, root: int) -> None:
        """Root's values in every rank's memory."""

    def barrier(self) -> None:
        """Returns when every rank has called it."""


class Transport(Protocol):
    """transport.collectives: what ranks exchange values by; in a bundle where there are several, or it is named.

    It owns no rank: whoever runs them joins each once and says so where one fails. `stop` aborts what still waits.
    """

    size: int  # the deployment's ranks
    dtypes: frozenset[str]  # as plans name them, 'f32' at least; operations that add take no 'u8'
    memory: str  # where values lie: 'host', or the device's word for its own

    def join(self, rank: int, stream: int = 0) -> Rank:
        """The rank's end; WorkerError for a rank that there is not, or that has joined. It may wait for the others."""

    def abort(self, reason: str) -> None:
        """No rank waits any more, from any thread; the first reason stands."""


class Pool(Protocol):
    """memory.pages: which cache pages belong to which sequence, with prefix reuse."""

    page_size: int
    pages_total: int

    def pages_free(self) -> int:
        """Pages that `grow` could give now."""

    def begin(self, key: int, ids: Sequence[int]) -> int:
        """Open sequence `key`; returns how many leading ids the cache has already: whole pages, never all."""

    def grow(self, key: int, length: int) -> bool:
        """Give the sequence pages for `length` positions in all; False (and nothing taken) where there are too few."""

    def pages(self, key: int) -> Sequence[int]:
        """The sequence's pages in order of position."""

    def computed(self, key: int, ids: Sequence[int]) -> None:
        """These ids (all from position 0) are now in the cache: full pages become reusable by others."""

    def end(self, key: int) -> None:
        """Close the sequence and give its pages back."""


class TokenStream(Protocol):
    """Turns ids into text piece by piece; holds back what is not yet whole UTF-8."""

    def push(self, token: int) -> str:
        """The text that this id completes; may be empty."""

    def flush(self) -> str:
        """What was held back, at the end."""


class TooLongError(ValueError):
    """A prompt of more ids than its caller has use for."""


class Text(Protocol):
    """model.text: tokenizer and chat template."""

    stop_ids: frozenset[int]  # ids that end a generation
    defaults: Mapping[str, Any]  # generation defaults of the model: temperature, top_p, top_k

    def encode(self, text: str, most: int) -> list[int]:
        """Ids of a plain prompt; may raise TooLongError, before all are made, where there are more than `most`."""

    def stream(self) -> TokenStream:
        """A stream for one answer."""

    def chat(self, messages: Sequence[Mapping[str, Any]], options: Mapping[str, Any], most: int) -> list[int]:
        """Ids of the prompt, as `encode`; raises ValueError with the template's own words where it refuses."""


@dataclass(frozen=True, slots=True)
class Request:
    """One generation. max_tokens counts new ids. seed and position define each draw."""

    prompt: tuple[int, ...]
    max_tokens: int
    sampling: Sampling
    stop_ids: frozenset[int]
    stop: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of an answer. finish: '' while it goes on, then 'stop', 'length' or 'error'.

    tokens: new ids so far. cached: ids of the prompt that were already in the cache.
    With 'error', `text` says why the answer ends here.
    """

    text: str
    tokens: int
    cached: int
    finish: str = ""


class Engine(Protocol):
    """execution.engine: continuous batching over one backend."""

    context: int  # positions of one sequence: prompt + new ids

    def generate(self, request: Request, deliver: Callable[[Piece], None]) -> Callable[[], None]:
        """Queue a request; `deliver` is called from the engine's thread. Returns the function that cancels it.

        Raises ValueError for a prompt that does not fit the context, WorkerError while draining.
        """

    def metrics(self) -> Iterator[tuple[str, str, str, float]]:
        """(name, 'counter' | 'gauge', help, value)."""

    def drain(self) -> None:
        """Accept nothing more and return when all running requests have ended."""


@dataclass(frozen=True, slots=True)
class Reply:
    """A page as it is sent."""

    status: int
    media_type: str
    body: bytes


class Http(Protocol):
    """surface.http: the server; others may add a page to it."""

    def route(self, path: str, answer: Callable[[], Reply]) -> None:
        """Serve GET `path` with what `answer` returns, from now on."""
