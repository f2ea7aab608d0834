"""The CUDA pack's kernels, compiled once a session: by NVRTC for how they are launched, for the CPU to be run."""

from __future__ import annotations

import importlib
import sys

import pytest

from pih_steps import cubin
from tests.integration.cuda.kernels import toys as toy_kernels
from tests.integration.cuda.kernels.sizes import BINDINGS
from tests.support import simgpu
from tests.support.launches import Launcher, read_launches
from tests.support.program import ROOT

sys.path.insert(0, str(ROOT / "plugins/backend/torch"))
importlib.import_module("pih_backend_torch.sample")


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    """Where the simulator's compiled files lie; one for the whole run of tests."""
    made = tmp_path_factory.getbasetemp() / "simgpu"
    made.mkdir(exist_ok=True)
    return made


@pytest.fixture(scope="session")
def launches(folder):
    """Symbol → entries."""
    return read_launches(simgpu.cubin_pack(folder, BINDINGS, "sm_89"))


@pytest.fixture(scope="session")
def here(folder, launches):
    """The kernels as they are."""
    return Launcher(simgpu.module(folder, cubin.source(BINDINGS)), launches)


@pytest.fixture(scope="session")
def toys(folder):
    """A module of kernels that do what no kernel may."""
    return toy_kernels.module(folder)
