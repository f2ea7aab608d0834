"""The running backend: a step is one copy to the device, the plan's launches, and one copy of the sampled ids back.

Everything is queued in one stream; the host waits for a step only when its ids are asked for, and may have queued the
next one by then, whose tokens may be ids that only the device knows yet.
"""

from __future__ import annotations

import ctypes
import threading
from contextlib import suppress
from dataclasses import dataclass

from pih_backend_cuda import batch
from pih_backend_cuda.calls import TOKENS, Bound, bind
from pih_backend_cuda.device import Device, released_on_failure
from pih_backend_cuda.driver import Driver
from pih_backend_cuda.pack import CCall, CStep, Pack
from pih_backend_cuda.upload import upload
from pih_runtime import operands
from pih_runtime.contracts import Graphs, Weights
from pih_runtime.errors import WorkerError
from pih_runtime.limits import check_step
from pih_runtime.plan import Plan
from pih_runtime.step import Step

MOST_IN_FLIGHT = 2


@dataclass(frozen=True, slots=True)
class Place:
    """Where a step in flight lies on the host: its arrays, the ids that come back, the event at its end."""

    arrays: int
    sampled: int
    done: ctypes.c_void_p


@dataclass(frozen=True, slots=True, eq=False)
class Ticket:
    """A submitted step: its place, and which of the ids are its."""

    place: Place
    row_slots: tuple[int, ...]


class CudaBackend:
    """`contracts.Backend` over one device. graphs: what records steps of decodes; None: none is recorded."""

    def __init__(
        self,
        plan: Plan,
        pack: Pack,
        weights: Weights,
        driver: Driver,
        device: Device,
        graphs: Graphs | None = None,
    ) -> None:
        self.plan = plan
        self._driver = driver
        self._device = device
        module = device.module(pack.cubin)
        self._arena = device.memory(plan.arena_bytes, "activations")
        caches = {cache.name: device.memory(cache.nbytes, f"cache {cache.name}") for cache in plan.caches}
        scratch = max((launch.scratch for items in pack.launches.values() for launch in items), default=0)
        self._calls = bind(
            plan, pack, self._arena, caches, upload(plan, weights, device), lambda name: self._function(module, name)
        )
        self._layout = batch.layout_of(plan)
        self._arrays = device.memory(self._layout.nbytes, "the step's arrays")
        self._sampled = device.memory(plan.limits.seqs * 4, "sampled ids")
        addresses = {name: self._arrays + offset for name, offset in self._layout.offsets.items()}
        self._step = CStep(**addresses, sampled=self._sampled, scratch=device.memory(scratch * 4, "scratch"))
        self._parameters = [_parameters(call.arguments, self._step) for call in self._calls]
        self._places = [
            Place(
                device.host_memory(self._layout.nbytes, "a step's arrays on the host"),
                device.host_memory(plan.limits.seqs * 4, "sampled ids on the host"),
                device.event(),
            )
            for _ in range(MOST_IN_FLIGHT)
        ]
        self._free = list(self._places)
        self._waited_for: set[Ticket] = set()
        driver("cuCtxSynchronize")  # zeroes and weights went by another stream, which the steps' does not wait for
        self._replay = graphs.record(device, plan.limits.seqs, self._queue_decodes) if graphs else None
        self._sampled_slots: set[int] = set()
        self._finished_rows = 0
        self._lock = threading.Lock()
        self._stopped = False

    def submit(self, step: Step) -> Ticket:
        """Queue a step; at most two are in flight. Raises WorkerError past the plan's limits."""
        with self._lock:
            if self._stopped:
                raise WorkerError("the backend has stopped")
            if not self._free:
                raise WorkerError(f"{MOST_IN_FLIGHT} steps are in flight already")
            check_step(step, self.plan, self._sampled_slots)
            self._device.use()
            place = self._free.pop()
            try:
                self._start(step, place)
            except WorkerError:
                with suppress(WorkerError):  # what was queued may still read the place: it is free when that has ended
                    self._driver("cuStreamSynchronize", self._device.stream)
                    self._free.append(place)
                raise
            self._sampled_slots.update(step.row_slots)
            ticket = Ticket(place, tuple(step.row_slots))
            self._waited_for.add(ticket)
            return ticket

    def wait(self, ticket: object) -> list[int]:
        """The sampled id of each wanted row, in order; a second time, or after `stop`, WorkerError."""
        with self._lock:
            if not isinstance(ticket, Ticket) or ticket not in self._waited_for:
                raise WorkerError("not a ticket of this backend that is still waited for")
            self._waited_for.remove(ticket)
        self._device.use()
        self._driver("cuEventSynchronize", ticket.place.done)
        ids = (ctypes.c_int32 * self.plan.limits.seqs).from_address(ticket.place.sampled)
        found = [ids[slot] for slot in ticket.row_slots]
        with self._lock:
            self._free.append(ticket.place)
            self._finished_rows = len(ticket.row_slots)
        return found

    def logits(self) -> list[memoryview[float]]:
        """Logits of the wanted rows of the last finished step, each [V] float32: copies: the next step reuses them."""
        place = operands.logits(self.plan, self._arena)
        self._device.use()
        rows = []
        for index in range(self._finished_rows):
            row = (ctypes.c_float * place.columns)()
            start = place.address + index * place.stride
            self._driver("cuMemcpyDtoH_v2", ctypes.addressof(row), start, ctypes.sizeof(row))
            rows.append(memoryview(row).cast("B").cast("f"))
        return rows

    def stop(self) -> None:
        """Finish what was submitted and give everything back. A second call does nothing."""
        with self._lock:
            if self._stopped:
                return
            self._stopped = True
            self._waited_for.clear()
            self._finished_rows = 0
        with released_on_failure(self._device):
            self._device.use()
            self._driver("cuStreamSynchronize", self._device.stream)
        self._device.close()

    def _start(self, step: Step, place: Place) -> None:
        stream = self._device.stream
        batch.write(step, self._layout, place.arrays)
        self._driver("cuMemcpyHtoDAsync_v2", self._arrays, place.arrays, self._layout.nbytes, stream)
        if not (self._replay and self._replay(step)):
            self._queue(len(step.ids), len(step.rows), len(step.seq_start) - 1)
        self._driver("cuMemcpyDtoHAsync_v2", place.sampled, self._sampled, self.plan.limits.seqs * 4, stream)
        self._driver("cuEventRecord", place.done, stream)

    def _queue(self, tokens: int, wanted: int, seqs: int) -> None:
        """The plan's launches, for a step of these counts or of less."""
        for call, parameters in zip(self._calls, self._parameters, strict=True):
            rows = tokens if call.arguments.axis == TOKENS else wanted
            if rows:
                self._launch(call, parameters, rows, seqs)

    def _queue_decodes(self, seqs: int) -> None:
        self._queue(seqs, seqs, seqs)

    def _launch(self, call: Bound, parameters: ctypes.Array[ctypes.c_void_p], rows: int, seqs: int) -> None:
        index = call.chosen(rows)
        launch = call.launches[index]
        blocks = -(-rows // launch.rows_per_block) + launch.blocks_per_seq * seqs
        self._driver(
            "cuLaunchKernel",
            call.functions[index],
            *(blocks, launch.y, launch.z),
            *(launch.threads, 1, 1),
            0,
            self._device.stream,
            parameters,
            None,
        )

    def _function(self, module: ctypes.c_void_p, name: str) -> ctypes.c_void_p:
        function = ctypes.c_void_p()
        self._driver("cuModuleGetFunction", ctypes.byref(function), module, name.encode())
        return function


def _parameters(call: CCall, step: CStep) -> ctypes.Array[ctypes.c_void_p]:
    """Addresses of a kernel's two parameters, which never change; whoever launches keeps both alive."""
    return (ctypes.c_void_p * 2)(ctypes.addressof(call), ctypes.addressof(step))
