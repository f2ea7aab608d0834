"""Gates: each trips on what it is about, says by how much, and on nothing else."""

import attrs
import pytest

from pih.diff import gates, report
from pih.diff.compare import compare
from pih.diff.facts import Component
from pih_runtime.errors import UsageError
from tests.unit.diff.recorded import pair

OLD, NEW = pair("bf16")
COMPRESSED = NEW.image.compressed - OLD.image.compressed


def tripped(old, new, growth=(), kinds=()):
    return gates.tripped(compare(old, new), growth, kinds)


@pytest.mark.parametrize(
    ("limit", "sizes"),
    [
        ("100kB", []),
        ("20 kB", ["compressed"]),
        (f"{COMPRESSED - 1}", ["compressed"]),
        (f"{COMPRESSED}", []),
        ("1B", ["unpacked", "compressed"]),
        ("0.1%", ["compressed"]),
        ("1 %", []),
        ("0%", ["unpacked", "compressed"]),
    ],
)
def test_growth_of_both_sizes(limit, sizes):
    found = tripped(OLD, NEW, [limit])
    assert [gate.why.split(",")[0].rpartition(" ")[2] for gate in found] == sizes
    assert all(gate.gate == f"--max-growth {limit}" for gate in found)


def test_what_grew_is_named():
    (gate, _) = tripped(OLD, NEW, ["1kB"])
    assert gate.why == "+18.1 kB unpacked, 17.1 kB over the 1.00 kB allowed (weights +90.2 kB)"


def test_a_smaller_image_never_trips():
    assert tripped(NEW, OLD, ["0"]) == ()
    assert tripped(OLD, OLD, ["0", "0%"], gates.KINDS) == ()


@pytest.mark.parametrize("limit", ["", "-1", "1TB", "big", "1e3", "1,5MB", "%", "1" * 40, "nan", "1MB2"])
def test_what_is_no_limit(limit):
    with pytest.raises(UsageError, match="--max-growth"):
        tripped(OLD, NEW, [limit])


def test_growth_cannot_be_judged_of_a_lock():
    with pytest.raises(UsageError, match="a lock knows no sizes"):
        tripped(attrs.evolve(OLD, image=None), NEW, ["1MB"])


def unpacked(side):
    """As it is where it is installed."""
    layers = tuple(attrs.evolve(layer, compressed=None) for layer in side.image.layers)
    return attrs.evolve(side, image=attrs.evolve(side.image, layers=layers))


@pytest.mark.parametrize("sides", [(unpacked(OLD), NEW), (OLD, unpacked(NEW)), (unpacked(OLD), unpacked(OLD))])
def test_growth_cannot_be_judged_by_half(sides):
    with pytest.raises(UsageError, match="no compressed size"):
        tripped(*sides, ["1GB"])
    assert tripped(*sides, kinds=gates.KINDS) == ()


@pytest.mark.parametrize("sides", [(unpacked(OLD), NEW), (OLD, unpacked(NEW))])
def test_no_growth_is_told_of_what_is_not_known(sides):
    rows = list(report.layers(compare(*sides).image))
    assert not any("shipped" in row for row in rows)
    assert rows[-1] == ("all", "unpacked", "34.0 MB", "34.0 MB", "+18.1 kB")


def test_a_new_component_and_its_licence():
    image = attrs.evolve(OLD.image, components=(*OLD.image.components, Component("foo", "1", 0)))
    for licence, why in (("MIT", []), ("SSPL-1.0", ["foo is new, under SSPL-1.0"])):
        new = attrs.evolve(OLD, image=image, licences=OLD.licences | {"foo": licence})
        assert [gate.why for gate in tripped(OLD, new, kinds=["licence"])] == why
        assert [gate.why for gate in tripped(OLD, new, kinds=["new-component"])] == ["foo is new"]
    unknown = attrs.evolve(OLD, image=image)
    assert [gate.why for gate in tripped(OLD, unknown, kinds=["licence"])] == ["foo is new, under NOASSERTION"]


def test_a_licence_that_only_a_build_tool_has_is_new_in_the_image():
    image = attrs.evolve(OLD.image, components=(*OLD.image.components, Component("foo", "1", 0)))
    old = attrs.evolve(OLD, licences=OLD.licences | {"ziglang": "X11"})
    new = attrs.evolve(old, image=image, licences=old.licences | {"foo": "X11"})
    assert len(tripped(old, new, kinds=["licence"])) == 1


def test_locks_have_these_gates_too():
    old = attrs.evolve(OLD, image=None)
    plugins = tuple(item for item in old.plugins if item.id != "health/probe")
    fewer = attrs.evolve(old, plugins=plugins)
    assert [gate.why for gate in tripped(fewer, old, kinds=["new-component"])] == ["health/probe is new"]
    assert tripped(old, fewer, kinds=["new-component"]) == ()
    relicensed = attrs.evolve(old, licences=old.licences | {"h11": "GPL-3.0-only"})
    assert [gate.why for gate in tripped(old, relicensed, kinds=["licence"])] == ["h11: MIT → GPL-3.0-only"]


def test_fallbacks_and_permissions():
    slower = attrs.evolve(OLD, fallbacks=("linear is slow",))
    assert [gate.why for gate in tripped(OLD, slower, kinds=["fallback"])] == ["linear is slow"]
    assert tripped(slower, OLD, kinds=["fallback"]) == ()
    plugins = (attrs.evolve(OLD.plugins[0], may=("/dev/npu0",)), *OLD.plugins[1:])
    assert [gate.why for gate in tripped(OLD, attrs.evolve(OLD, plugins=plugins), kinds=["permission"])] == [
        "backend/cpu: /dev/npu0"
    ]


def test_an_unknown_kind():
    with pytest.raises(UsageError) as failure:
        tripped(OLD, NEW, kinds=["licens"])
    assert "licence" in failure.value.fix
