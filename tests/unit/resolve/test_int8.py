"""A profile that asks for int8 weights: what its lock says, who can run them, and when they are offered."""

import re
from pathlib import Path

import pytest

from pih import catalog, pins, profile
from pih.resolve import locking
from pih_runtime.errors import ResolutionError

ROOT = Path(__file__).parents[3]
KNOWN, PINS = catalog.load(ROOT), pins.load(ROOT)
INT8 = '[weights]\nformat = "int8"'


@pytest.fixture(scope="module")
def lock(tmp_path_factory):
    memo = tmp_path_factory.mktemp("lowered")

    def lock(name, *changes):
        text = (ROOT / "profiles" / f"{name}.toml").read_text()
        for old, new in changes:
            assert old in text
            text = text.replace(old, new)
        intent = profile.parse(text.encode(), ROOT / "profiles" / "x.toml")
        return locking.lock(intent, KNOWN, PINS, None, fetch=None, pin=None, memo=memo)

    return lock


def test_its_lock_says_so_and_counts_half_the_bytes(lock):
    stored, made = lock("qwen3-4090d-synthetic"), lock("qwen3-4090d-synthetic", ("[weights]", INT8))
    assert (stored.weights.format, made.weights.format) == ("stored", "int8")
    assert {item.weight for item in made.bindings if item.op in ("linear", "embed")} == {"int8"}
    assert 0.5 < made.budget.weights / stored.budget.weights < 0.51
    sources = {step.id: step.params.get("checkpoint", {}).get("weights") for step in made.build.steps}
    assert {name for name, found in sources.items() if found} == {"plan", "weights"}
    assert all("weights" not in step.params.get("checkpoint", {}) for step in stored.build.steps)


def test_a_pack_without_kernels_for_it_is_named(lock):
    with pytest.raises(ResolutionError, match=r"(?s)int8 weights.*kernels/cpu") as caught:
        lock("qwen3-cpu-synthetic", ("[weights]", INT8))
    assert "a checkpoint in one of" in caught.value.fix


def test_it_is_offered_where_memory_does_not_suffice_and_fits_then(lock):
    small = ('memory = "23 GiB"', 'memory = "5000 MiB"')
    with pytest.raises(ResolutionError) as caught:
        lock("qwen3-4090d-synthetic", small)
    *parts, total = re.findall(r"([0-9.]+) MiB(?= [+=]| on)", caught.value.what)
    assert "plugins" in caught.value.what
    assert sum(map(float, parts)) == pytest.approx(float(total), abs=0.3)
    assert 'weights.format = "int8"' in caught.value.fix
    assert lock("qwen3-4090d-synthetic", small, ("[weights]", INT8)).weights.format == "int8"
