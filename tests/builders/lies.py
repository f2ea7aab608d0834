"""Locks that nothing can be built from, sealed as `pih lock` seals them: every builder says so before it builds."""

import json
from contextlib import contextmanager

from tests.builders.sources import TREE
from tests.support.locks import sealed_text
from tests.support.program import PROFILE

LOCK = PROFILE.replace(".toml", ".lock.json")


def _sized(name):
    def change(lock):
        next(item for item in lock["artifacts"] if item["name"] == name)["size"] += 1

    return change


# What is changed, and what is told.
LIES = {
    "another schema": (lambda lock: lock.update(schema=2), "lock schema 2 is not 1"),
    "nothing": (dict.clear, "lock schema null is not 1"),
    "schema alone": (lambda lock: [lock.pop(key) for key in [*lock] if key != "schema"], "missing"),
    "another processor": (
        lambda lock: lock["target"].update(arch="aarch64"),
        "the target linux/aarch64 is not supported, but linux/x86_64 is",
    ),
    "another processor's image": (
        lambda lock: lock["build"]["steps"][-1]["params"].update(arch="aarch64"),
        "has arch 'aarch64', the lock 'x86_64'",
    ),
    "other limits than the plan's": (lambda lock: lock["limits"].update(batch=0), "step 'plan' has limits "),
    "another cache than the plan's": (lambda lock: lock["limits"].update(kv_dtype="f32"), "has kv_dtype 'bf16'"),
    "another plan": (lambda lock: lock["plan"].update(sha256="0" * 64), "plan"),
    "another size of a package of the interpreter": (_sized("libc6"), "the lock says 2759321 bytes"),
    "another size of a wheel": (_sized("numpy"), "the lock says 16918165 bytes"),
    "another size of the seed": (lambda lock: lock["build"]["seed"].update(size=1), "the lock says 1 bytes"),
}


@contextmanager
def told(tree, change):
    """The lock of a copied source tree says so; and a file of the tree is another, which some step would see."""
    lock, source = tree / LOCK, tree / TREE / "__init__.py"
    before, text = lock.read_text(), source.read_text()
    data = json.loads(before)
    change(data)
    lock.write_text(sealed_text(json.dumps(data)) if data else "{}")
    source.write_text(f"{text}# another\n")
    try:
        yield
    finally:
        lock.write_text(before)
        source.write_text(text)
