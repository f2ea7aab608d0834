"""Bugs planted in a copy of backend/cuda: tests of its steps, or the software GPU's log of its end, catch each one."""

from __future__ import annotations

import importlib
import shutil
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass

import numpy as np
import pytest

from pih_runtime.plan import Limits
from tests.integration.truth import test_cuda_steps as steps
from tests.support import apart, simgpu
from tests.support.program import ROOT
from tests.truth import models
from tests.truth.drive import Driver, Part

LIMITS = Limits(tokens=64, seqs=4, context=128)
PACKAGE = "pih_backend_cuda"
NEEDS = 1 << 30  # bytes: more than the second of three devices has; the first is of another minor
RELEASED = "simgpu: context released, 0 things not given back\n"


def first_step(backend, _refusing):
    """All that the start put on the device is there by the first step, not the second."""
    first, second = (Driver(backend).step([Part(0, 0, steps.IDS[:40])]) for _ in range(2))
    assert first[0] == second[0]
    np.testing.assert_array_equal(first[1], second[1])


def in_flight(backend, _refusing):
    steps.test_two_steps_in_flight_are_the_same_two(backend, Driver(backend))


def refused(backend, refusing):
    for function in ("cuMemcpyDtoHAsync_v2", "cuEventRecord"):
        steps.test_a_step_that_the_driver_refuses_leaves_room_for_the_next(
            backend, Driver(backend), [refusing], function
        )


def stopped_in_flight(backend, _refusing):
    for slot in range(2):
        backend.submit(Driver(backend).batch([Part(slot, 0, steps.IDS[:9])]))


@dataclass(frozen=True)
class Bug:
    """What stands once in a source is replaced: `check` fails, or the end."""

    name: str
    check: Callable
    source: str
    old: str
    new: str


def line(indent, text):
    return " " * indent + text + "\n"


RECORD = line(8, 'self._driver("cuEventRecord", place.done, stream)')
BACK = line(8, 'self._driver("cuMemcpyDtoHAsync_v2", place.sampled, self._sampled, self.plan.limits.seqs * 4, stream)')
WAIT = line(8, 'self._driver("cuEventSynchronize", ticket.place.done)')
REFUSED = line(20, 'self._driver("cuStreamSynchronize", self._device.stream)')
CLOSE = line(8, "self._device.close()")
STOPPED = line(12, 'self._driver("cuStreamSynchronize", self._device.stream)') + CLOSE
TICKET = line(12, "self._waited_for.add(ticket)")
TAKEN = "self._free.pop()"
ARRAYS = "self._layout.nbytes, stream)"
BUGS = [
    Bug("the event before the ids' copy", in_flight, "backend.py", BACK + RECORD, RECORD + BACK),
    Bug("no event", in_flight, "backend.py", RECORD, ""),
    Bug("no wait for the event", in_flight, "backend.py", WAIT, ""),
    Bug("arrays by another stream", in_flight, "backend.py", ARRAYS, ARRAYS.replace("stream", "None")),
    Bug("ids by another stream", in_flight, "backend.py", BACK, BACK.replace("stream)", "None)")),
    Bug("one place for all steps", in_flight, "backend.py", TAKEN, "self._places[0]"),
    Bug("a place that is free again at once", in_flight, "backend.py", TAKEN, "self._free[-1]"),
    Bug("a refused step's place is free at once", refused, "backend.py", REFUSED, ""),
    Bug("no wait for what the start put there", first_step, "backend.py", 'driver("cuCtxSynchronize")', "pass"),
    Bug("a stop that does not wait", stopped_in_flight, "backend.py", STOPPED, line(12, "pass") + CLOSE),
    Bug("a device that is too small stays open", first_step, "device.py", line(8, "device.close()"), ""),
    Bug("a device of the same major", first_step, "device.py", "if found != sm:", "if found[:4] != sm[:4]:"),
]


@pytest.fixture(scope="module")
def deployed(gpu):
    """The plan of one layer, its weights, the folder of its pack, and that of the pack's modules."""
    models.cuda_backend("sm_89", gpu)  # the plugin as it is, which the copies stand in for
    checkpoint, graph = steps.one_layer()
    lowered = models.lowered_for("kernels/cuda", checkpoint, graph, LIMITS, "bf16", "sm_89")
    made, modules = simgpu.pack(gpu, [asdict(binding) for binding in lowered.bindings], "sm_89")
    return lowered.plan, models.Packed(lowered, checkpoint), made, modules


@pytest.fixture
def run(deployed, gpu, tmp_path, monkeypatch):
    """A function: a check and the bug that it is to find -> nothing, where the check passes and all is given back."""
    plan, weights, made, modules = deployed

    def of(check, bug=None):
        sources = shutil.copytree(ROOT / "plugins/backend/cuda" / PACKAGE, tmp_path / PACKAGE)
        if bug:
            text = (sources / bug.source).read_text()
            assert text.count(bug.old) == 1
            (sources / bug.source).write_text(text.replace(bug.old, bug.new))
        for name in [name for name in sys.modules if name.partition(".")[0] == PACKAGE]:
            monkeypatch.delitem(sys.modules, name)
        monkeypatch.syspath_prepend(tmp_path)
        backend, device, driver, pack = (
            importlib.import_module(f"{PACKAGE}.{name}") for name in ("backend", "device", "driver", "pack")
        )
        # a driver keeps its state, errors among it
        monkeypatch.setattr(driver, "LIBRARY", str(simgpu.apart(gpu, tmp_path)))
        log = tmp_path / "log"
        devices = f"sm_86:{8 * NEEDS},sm_89:{NEEDS - 1},sm_89:{8 * NEEDS}"
        monkeypatch.setenv("PIH_SIMGPU", simgpu.settings(modules, log=log, devices=devices))
        refusing, found = steps.Refusing(driver.load_driver()), pack.read_pack(made)
        opened = device.open_device(refusing, "sm_89", NEEDS, found.cuda)
        running = backend.CudaBackend(plan, found, weights, refusing, opened)
        try:
            check(running, refusing)
        finally:
            running.stop()
        assert log.read_text() == 2 * RELEASED

    return of


@pytest.mark.parametrize("check", {bug.check: 0 for bug in BUGS}, ids=lambda check: check.__name__)
def test_the_check_passes_on_the_backend_as_it_is(run, check):
    run(check)


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_is_caught(run, bug):
    said = apart.raised(lambda: run(bug.check, bug))
    assert said.startswith(("AssertionError: ", "WorkerError: ", "Failed: ", "SIGSEGV: ", "SIGBUS: ", "SIGABRT: ")), (
        said
    )
