# ruff: noqa: E501 - what is broken reads best in one line
"""A transport is tried by the suite: the example's passes, and each way not to keep the contract is found."""

import shutil

import pytest

from pih.conformance import process, suite
from tests.conformance.checks import nothing
from tests.support.program import ROOT

EXAMPLE = ROOT / "examples" / "npu" / "transport"
# What is broken: (file, what it says, what it says then), and the check that must fail.
BROKEN = {
    "own values first": ("transport.py", 'dtype, b"".join)', 'dtype, lambda p: b"".join(p[self.rank :] + p[: self.rank]))', "all_gather"),
    "one value short": ("transport.py", "lambda parts: values.sums(parts, dtype)", "lambda parts: parts[0]", "all_reduce"),
    "bf16 cut, not rounded": ("values.py", "bit + 0x7FFF + (bit >> 16 & 1) >> 16 & 0xFFFF for bit in bits", "bit >> 16 & 0xFF00 for bit in bits", "all_reduce"),
    "added from the own rank on": (
        "transport.py", "lambda parts: values.sums(parts, dtype)", "lambda parts: values.sums(parts[self.rank :] + parts[: self.rank], dtype)",
        "equal bits",
    ),
    "everyone's first share": ("transport.py", "slice(self.rank * size, (self.rank + 1) * size)", "slice(0, size)", "reduce_scatter"),
    "always the first rank's": ("transport.py", "lambda parts: parts[root]", "lambda parts: parts[0]", "broadcast"),
    "a barrier that holds nobody": ("transport.py", 'self._group.exchange(self.rank, "barrier", b"")', "pass", "barrier"),
    "a root unchecked": ("transport.py", "not 0 <= root < self.size", "root < 0", "refusals"),
    "lengths unchecked": ("values.py", "count < 0 or len(raw) < wanted", "count < 0", "refusals"),
    "joined twice": ("transport.py", "rank in self.joined", "rank < 0", "refusals"),
    "a silent abort": ("group.py", "self.reason = self.reason or reason", 'self.reason = "failed"', "abort"),
    "deaf": ("group.py", "self.barrier.abort()", "pass", "abort"),
    "a stop that leaves ranks waiting": ("transport.py", 'self.group.abort("the transport has stopped")', "pass", "stop"),
    "a dtype of its own": ("transport.py", "frozenset(DTYPE_BYTES)", 'frozenset({"f8"})', "all_gather"),
    "a size of its own": ("__init__.py", "Transport(context.ranks)", "Transport(4)", "all_gather"),
}  # fmt: skip


@pytest.fixture
def made(tmp_path):
    shutil.copytree(EXAMPLE, tmp_path / "made", ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path / "made"


def outcomes(folder):
    return {check.name: check for check in suite.check(folder, ROOT, nothing)}


def test_the_example_s_keeps_to_it():
    found = outcomes(EXAMPLE)
    assert {check.outcome for check in found.values()} == {"passed"}, found
    assert len([name for name in found if name.startswith("collective")]) == 9


@pytest.mark.parametrize("sort", BROKEN)
def test_a_broken_transport_fails(made, sort, monkeypatch):
    file, old, text, failing = BROKEN[sort]
    path = made / "pih_transport_npu" / file
    before = path.read_text()
    assert old in before
    path.write_text(before.replace(old, text))
    monkeypatch.setattr(process, "SECONDS", 60.0)
    found = outcomes(made)
    assert found[f"collective: {failing}"].outcome == "failed", found
    assert found[f"collective: {failing}"].detail


def test_a_transport_of_device_memory_is_tried_with_its_device(made):
    path = made / "pih_transport_npu" / "transport.py"
    path.write_text(path.read_text().replace('memory: str = "host"', 'memory: str = "npu"'))
    found = outcomes(made)
    assert found["collective: abort"].outcome == "skipped"
    assert "memory of npu" in found["collective: abort"].detail
