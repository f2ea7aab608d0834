"""Cubins of the shipped profiles, and what is on record of them: `python -m tests.integration.cuda.kernels.shipped`
records them again, for when kernels or their compiler have changed on purpose."""

from __future__ import annotations

import hashlib
import json
import tempfile
from pathlib import Path

from pih_steps import cubin_elf
from tests.support import simgpu
from tests.support.program import ROOT

RECORD = Path(__file__).with_name("cubins.json")


def locks():
    """Profile → its lock, of those for a CUDA device, in order of their names."""
    every = {
        path.name.split(".")[0]: json.loads(path.read_text()) for path in sorted(ROOT.glob("profiles/*.lock.json"))
    }
    return {
        name: lock for name, lock in every.items() if "kernels/cuda" in {plugin["id"] for plugin in lock["plugins"]}
    }


def cubin_of(lock, folder):
    """The bytes that the build step `kernels` makes."""
    params = next(step["params"] for step in lock["build"]["steps"] if step["run"] == "cubin")
    return (simgpu.cubin_pack(folder, params["bindings"], params["isa"]) / "pack.cubin").read_bytes()


def facts(cubin):
    """The digest, and what each entry costs: what a change of either is looked at by."""
    read = cubin_elf.read(cubin, "pack.cubin")
    entries = {
        entry.name: f"registers {entry.registers}, shared {entry.shared}, code {entry.code}" for entry in read.entries
    }
    return {"sha256": hashlib.sha256(cubin).hexdigest(), "sm": read.sm, "size": len(cubin), "entries": entries}


def main():
    with tempfile.TemporaryDirectory() as folder:
        found = {name: facts(cubin_of(lock, Path(folder))) for name, lock in locks().items()}
    RECORD.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
