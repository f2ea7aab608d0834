"""Size budgets: written with a headroom, held, broken by name, read strictly."""

import attrs
import pytest

from pih.diff import budget, budget_file
from pih.diff.budget import Budget, Limit
from pih.diff.facts import Component, File
from pih_runtime.errors import UsageError
from tests.unit.diff.recorded import pair

OLD, NEW = (side.image for side in pair("bf16"))


def over(limits, image):
    return {row.what: row for row in budget.judged(limits, image) if row.over}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "tiny.size.toml"


def test_a_fresh_budget_holds_and_survives_its_file(path):
    made = budget.updated(None, OLD, "")
    budget_file.write(path, made)
    assert budget_file.read(path) == made
    assert over(made, OLD) == {}
    assert {row.what for row in budget.judged(made, OLD)} >= {
        "total unpacked",
        "layer base compressed",
        "component h11",
    }
    assert path.stat().st_mode & 0o777 == 0o644
    assert list(path.parent.iterdir()) == [path]


def test_what_is_over_says_by_how_much_and_what_grew():
    found = over(budget.updated(None, OLD, "5%"), NEW)
    assert found.keys() == {"layer weights unpacked", "layer weights compressed", "component weights"}
    row = found["layer weights unpacked"]
    assert row.over == row.size - row.limit == 139_008 - 51_300
    assert row.why == "grew since the budget: weights +90.2 kB"
    assert found["component weights"].why == "largest: /pih/weights/weights.safetensors 139 kB"


def test_a_total_names_what_grew_most():
    tight = attrs.evolve(budget.updated(None, OLD, "0%"), total=Limit(unpacked="33 MB"))
    assert over(tight, NEW)["total unpacked"].why == "grew since the budget: weights +90.2 kB"


def test_a_new_component_has_the_limit_of_others():
    limits = budget.updated(None, OLD, "1%")
    file = File("/pih/lib/foo.so", 600_000, "sha256:0", "foo", "wheels")
    image = attrs.evolve(OLD, components=(*OLD.components, Component("foo", "1", 600_000)), files=(*OLD.files, file))
    row = over(limits, image)["component foo"]
    assert (row.limit, row.why) == (500_000, "new; largest: /pih/lib/foo.so 600 kB")
    none = attrs.evolve(limits, components={k: v for k, v in limits.components.items() if k != "*"})
    assert over(none, image).keys() == set()


def test_a_budget_by_hand_may_have_one_line():
    assert over(Budget(total=Limit(unpacked="35 MB")), OLD) == {}
    row = over(Budget(total=Limit(unpacked="33 MB")), OLD)["total unpacked"]
    assert row.why == ""
    every = over(Budget(components={"*": "1 MB"}), OLD)
    assert every["component libssl3"].why.startswith("largest: ")


def test_updating_keeps_headroom_and_the_limit_of_others():
    first = attrs.evolve(budget.updated(None, OLD, "10%"), components={"*": "1 MB", "gone": "1 MB"})
    second = budget.updated(first, NEW, "")
    assert (second.headroom, second.components["*"]) == ("10%", "1 MB")
    assert "gone" not in second.components
    assert over(second, NEW) == {}


@pytest.mark.parametrize(
    ("limits", "words"),
    [
        (Budget(layers={"wieghts": Limit("1 B")}), ("layer 'wieghts'", "did you mean 'weights'?")),
        (Budget(components={"libsl3": "1 kB"}), ("component 'libsl3'", "did you mean 'libssl3'?")),
        (Budget(components={"zzz": "1 kB", "*": "1 GB"}), ("component 'zzz'", "take its line out")),
        (Budget(), ("no limit", "--update")),
        (Budget(layers={"base": Limit()}), ("no limit", "--update")),
    ],
)
def test_a_limit_that_nothing_is_held_to_is_no_pass(limits, words):
    with pytest.raises(UsageError) as failure:
        budget.judged(limits, OLD)
    assert all(word in str(failure.value) for word in words), str(failure.value)


def test_a_layer_that_is_gone_has_to_be_measured_again():
    separate = pair("separate")[1].image
    with pytest.raises(UsageError, match="layer 'weights'"):
        budget.judged(budget.updated(None, OLD, ""), separate)
    assert over(budget.updated(budget.updated(None, OLD, ""), separate, ""), separate) == {}


def test_compressed_sizes_must_be_known():
    layers = tuple(attrs.evolve(layer, compressed=None) for layer in OLD.layers)
    unpacked = attrs.evolve(OLD, layers=layers)
    assert budget.updated(None, unpacked, "").total.compressed is None
    with pytest.raises(UsageError, match="an unpacked bundle has no compressed size"):
        budget.judged(budget.updated(None, OLD, ""), unpacked)


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("total = 5", "total: 5 is not a table"),
        ("[total]\nunpakced = '1 MB'", "total.unpakced: unknown key"),
        ("[total]\nunpacked = 'big'", 'total.unpacked: "big" is no amount'),
        ("[components]\nx = ''", 'components.x: "" is no amount'),
        ("[total]\nunpacked = ''", 'total.unpacked: "" is no amount'),
        ("[components]\nx = 5", "components.x: 5 is not a string"),
        ("[layers.base]\ncompressed = '-1'", 'layers.base.compressed: "-1" is no amount'),
        ("headroom = '5'", 'headroom: "5" is no share'),
        ("[measured]\nx = '1'", "measured.x"),
        ("a = ", "not TOML"),
        ("a = " + "[" * 5000, "not TOML: nested too deeply"),
        ("a = " + "1" * 5000, "not TOML: a number of thousands of digits is too long"),
        ("\xff", "not TOML"),
        ("#" * (1 << 20) + "#", "too many"),
    ],
)
def test_a_file_that_is_no_budget(path, text, where):
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(UsageError) as failure:
        budget_file.read(path)
    assert where in failure.value.what
    assert failure.value.fix
    assert "--update" not in failure.value.fix or "delete it" in failure.value.fix  # a budget is read to be updated


def test_no_file(path):
    with pytest.raises(UsageError, match="No such file"):
        budget_file.read(path)


@pytest.mark.parametrize("name", ['quo"te', "back\\slash", "tab\t", "\x7f", "new\nline", "ü", "a.b", "*"])
def test_names_of_a_bundle_are_text_in_the_file(path, name):
    image = attrs.evolve(OLD, components=(Component(name, "", 5),))
    budget_file.write(path, budget.updated(Budget(), image, ""))
    assert budget_file.read(path).measured == {name: 5}


def test_a_share_that_is_none():
    with pytest.raises(UsageError, match="headroom"):
        budget.updated(None, OLD, "5")
