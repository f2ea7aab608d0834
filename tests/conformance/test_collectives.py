"""The semantics of collectives: the example's library keeps to them, and each way not to is found."""

import sys

import pytest

from pih.conformance import collectives, suite
from tests.conformance.test_suite import nothing
from tests.support.program import ROOT

sys.path.insert(0, str(ROOT / "examples" / "npu" / "plugin"))
from pih_backend_npu.collectives import Group

MANIFEST = """\
id = "transport/made"
version = "0.1.0"
kind = "transport"
abi = 1
summary = "groups of threads"
[provides]
[runtime]
package = "pih_transport_made"
entry = "pih_transport_made:start"
host_bytes = 1000
[[tested]]
version = "0.1.0"
pih = ">=0.1,<0.2"
abi = 1
"""
START = """

class Transport:
    def group(self, size):
        return Group(size)


def start(context):
    return Transport()
"""


class Unordered(Group):
    def all_gather(self, rank, values):
        found = self._exchange(rank, values)
        return [value for part in found[rank:] + found[:rank] for value in part]


class OwnFirst(Group):
    def all_reduce(self, rank, values):
        found = self._exchange(rank, values)
        ordered = found[rank:] + found[:rank]
        return [sum(column) for column in zip(*ordered, strict=True)]


class NotAll(Group):
    def all_reduce(self, rank, values):
        return self._exchange(rank, values)[0]


class Deaf(Group):
    def abort(self):
        pass


@pytest.mark.parametrize("name", collectives.CHECKS)
def test_the_example_s_library_keeps_to_them(name):
    collectives.CHECKS[name](Group)


@pytest.mark.parametrize(
    ("name", "group"), [("all_gather", Unordered), ("all_reduce", OwnFirst), ("all_reduce", NotAll), ("abort", Deaf)]
)
def test_groups_that_do_not_are_found(name, group, monkeypatch):
    monkeypatch.setattr(collectives, "_SECONDS", 0.5)
    with pytest.raises(collectives.BrokenGroupError):
        collectives.CHECKS[name](group)


@pytest.mark.parametrize("broken", ["", "all_gather"])
def test_a_transport_is_tried_by_the_suite(tmp_path, broken):
    package = tmp_path / "pih_transport_made"
    package.mkdir()
    text = (ROOT / "examples/npu/plugin/pih_backend_npu/collectives.py").read_text()
    if broken:
        text = text.replace("for part in found for", "for part in found[:1] for")
    (package / "__init__.py").write_text(text + START)
    (tmp_path / "plugin.toml").write_text(MANIFEST)
    found = list(suite.check(tmp_path, ROOT, nothing))
    failed = [check.name for check in found if check.outcome != "passed"]
    assert failed == ([f"collective: {broken}"] if broken else [])
    assert len([check for check in found if check.name.startswith("collective")]) == 3
