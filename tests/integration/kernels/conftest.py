"""Small kernel packs, compiled on demand, for each instruction set that this machine has."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from pathlib import Path

import pytest

from pih_steps import kernels
from pih_steps.spec import Spec
from tests.integration.kernels.packs import ISAS, ROOT, Team, host_has, pack_module
from tests.support.artifacts import artifact


@pytest.fixture(scope="session")
def ziglang():
    return artifact("wheel", "ziglang")


@pytest.fixture(scope="session")
def build(ziglang):
    """build(isa, bindings) -> path of the pack; cached between sessions by everything that goes into it."""
    trees = {"kernels/include": ROOT / "kernels" / "include", "kernels/cpu": ROOT / "kernels" / "cpu"}
    sources = [path.read_bytes() for tree in trees.values() for path in sorted(tree.glob("*.h"))]
    sources.append(Path(kernels.__file__).read_bytes())
    cache = Path(tempfile.gettempdir()) / f"pih-test-packs-{os.getuid()}"
    cache.mkdir(mode=0o700, exist_ok=True)

    def compile_once(isa, bindings):
        digest = hashlib.sha256(json.dumps([isa, bindings]).encode() + b"".join(sources)).hexdigest()
        path = cache / f"{digest}.so"
        if not path.exists():
            part = path.with_suffix(f".{os.getpid()}")
            kernels.run(Spec({"isa": isa, "bindings": bindings}, {"ziglang": ziglang}, trees, {}, (), part))
            part.rename(path)
        return path

    return compile_once


@pytest.fixture(params=[pytest.param(isa, marks=pytest.mark.where_possible) for isa in ISAS])
def isa(request):
    if not host_has(request.param):
        pytest.skip(f"this CPU lacks {request.param}")
    return request.param


@pytest.fixture
def team(isa, build):
    """team(bindings, threads=1): a running team over a pack of these bindings."""
    running = []

    def make(bindings, threads=1):
        pack = pack_module.load_pack(build(isa, bindings))
        assert pack.isa == isa
        running.append(Team(pack, threads))
        return running[-1]

    yield make
    for one in running:
        one.stop()
