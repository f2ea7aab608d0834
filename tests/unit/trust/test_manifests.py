"""A plugin.toml with anything changed, through the whole of `lock`: a lock that adds up, or an error in words."""

import re
from pathlib import Path

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pih import catalog, lock, pins, profile, trust
from pih.resolve import locking
from pih.trust import content, find
from pih.trust.keyring import Keyring
from pih_runtime.errors import PihError, ResolutionError

ROOT = Path(__file__).parents[3]
NPU = ROOT / "examples" / "npu"
MANIFEST = (NPU / "plugin" / "plugin.toml").read_text()
OWN = catalog.load(ROOT)
PINS = pins.load(ROOT)
KERNEL = 'template = "linear_bf16"\nconstants = []\n'
FUSED = """
[[report.fused]]
ops = ["rms_norm", "gather"]
isa = ["x86-64-v3"]
source = "kernels.py"
template = "norm_gather"
constants = ["columns"]
operands = [0, 1, 3]
same = [[0, 2]]
dropped = [2]
precision = "exact"
mode = "exact"
equal = { groups = 1 }
multiple = { columns = 2 }
shared_scratch = ["columns"]
"""
EXTRA = MANIFEST.replace(
    KERNEL,
    'template = "linear_bf16"\nconstants = ["n", "k"]\nscratch = { k = 1 }\nshared_scratch = ["n"]\n'
    'multiple = { k = 2 }\nmost = { k = 1_000_000, "n * k" = 4294967295 }\n',
)
WHOLE = EXTRA + FUSED
VALUES = (
    *("0", "-1", "1", "3", "4294967295", "-800000000", "1" + "0" * 400, "1.5", "true"),
    *('""', '"nope"', '"../x"', '"rows"', '"columns"', '"f32"', '"int8"', '"pih_backend_npu:nope"', '">=1"', '"9"'),
    *("[]", '["nope"]', '["columns", "columns"]', "[0, 99]", "[[1]]", "[-1]", "{}"),
    *("{ columns = 0 }", "{ columns = -1000 }", "{ nope = 3 }", "{ n = 4294967296 }", "{ k = 3 }"),
)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return tmp_path_factory.mktemp("npu")


def locked(text, folder):
    """The lock of the example's profile with this manifest in the plugin's place."""
    plugin = folder / "plugin"
    if not plugin.is_dir():
        plugin.mkdir()
        for item in (NPU / "plugin").rglob("*.py"):
            target = plugin / item.relative_to(NPU / "plugin")
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(item.read_bytes())
    (plugin / "plugin.toml").write_text(text)
    given = profile.load(NPU / "npu.toml")
    sources = (attrs.evolve(given.intent.plugins[0], path=str(plugin)),)
    intent = attrs.evolve(given, intent=attrs.evolve(given.intent, plugins=sources))

    def bring(_):
        (folder / "archive").write_bytes(content.of_folder(plugin).archive)
        return folder / "archive"

    known = trust.Offers(OWN, tuple(find.found(intent, Keyring())), Keyring()).beside(())
    return locking.lock(intent, known, PINS, None, fetch=bring, pin=None)


@settings(deadline=None, max_examples=150)
@given(data=st.data())
def test_a_changed_manifest_locks_or_is_refused_in_words(data, place):
    lines = WHOLE.split("\n")
    at = [number for number, line in enumerate(lines) if re.match(r'["\w.]+ = ', line)]
    for number in data.draw(st.lists(st.sampled_from(at), min_size=1, max_size=3, unique=True)):
        value = data.draw(st.sampled_from(VALUES))
        lines[number] = f"{lines[number].partition(' = ')[0]} = {value}"
    adds_up_or_says_why("\n".join(lines), place)


def adds_up_or_says_why(text, place):
    words = ""
    try:
        found = locked(text, place)
    except PihError as problem:
        words = str(problem)
    assert len(words) < 5000
    if words:
        assert "\n  to fix: " in words
        return
    budget = attrs.asdict(found.budget)
    assert all(number >= 0 for number in budget.values())
    assert budget["total"] == sum(budget[name] for name in ("weights", "kv", "activations", "spill", "host"))
    assert found.budget.host >= 24_000_000
    assert lock.from_json(lock.to_json(found), "x") == found


def test_unchanged_it_locks(place):
    assert locked(WHOLE, place).budget.host >= 8_000_000
    assert locked(MANIFEST, place).budget.host >= 8_000_000


REFUSED = {
    "no rows": ("rows = 1", "rows = 0", "report.layout[0].rows: 0 is out of range"),
    "rows below none": ("rows = 1", "rows = -1", "report.layout[0].rows: -1 is out of range"),
    "a multiple of nothing": (KERNEL, KERNEL + "multiple = { k = 0 }\n", '"k" = 0 is out of range'),
    "a multiple of what is not": (KERNEL, KERNEL + "multiple = { nope = 3 }\n", 'multiple: "nope" is not allowed'),
    "an equal of what is not": (KERNEL, KERNEL + "equal = { nope = 3 }\n", 'equal: "nope" is not allowed'),
    "a bound of what is not": (KERNEL, KERNEL + 'most = { "k * nope" = 3 }\n', 'most: "nope" is not allowed'),
    "a bound of nothing": (KERNEL, KERNEL + "most = { k = 0 }\n", '"k" = 0 is out of range'),
    "a bound that is no term": (KERNEL, KERNEL + 'most = { "k +  k" = 3 }\n', 'most: "k +  k" is not allowed'),
    "a constant that is not": ("constants = []", 'constants = ["nope"]', 'constants: "nope" is not allowed'),
    "scratch by what is not": (KERNEL, KERNEL + "scratch = { nope = 1 }\n", 'scratch: "nope" is not allowed'),
    "scratch below none": (KERNEL, KERNEL + "scratch = { columns = -1000 }\n", '"columns" = -1000 is out of range'),
    "shared scratch": (KERNEL, KERNEL + 'shared_scratch = ["nope"]\n', 'shared_scratch: "nope" is not allowed'),
    "host bytes below none": ("host_bytes = 8000000", "host_bytes = -1", "host_bytes: -1 is out of range"),
    "too many host bytes": ("host_bytes = 8000000", "host_bytes = 1" + "0" * 400, "host_bytes: 1000000"),
    "by token": ("host_bytes = 8000000", "host_bytes_per_token = -1", "host_bytes_per_token: -1 is out of range"),
    "on a device": ("host_bytes = 8000000", "device_bytes = -1", "device_bytes: -1 is out of range"),
    "devices": ('os = ["linux"]', "devices = -1", "target.devices: -1 is out of range"),
    "an ABI": ("abi = 1\n\n#", "abi = -1\n\n#", "tested[0].abi: -1 is out of range"),
    "a layout": ('layout = "rows"', 'layout = "row"', 'report.kernel[0].layout: "row" is not allowed'),
    "an activation": ('activation = "f32"', 'activation = "f31"', 'report.kernel[0].activation: "f31" is not allowed'),
    "a layout for no weight": ('layout = ""', 'layout = "rows"', 'report.kernel[6].layout: "rows" is not allowed'),
    "a weight without a layout": ('layout = "rows"', 'layout = ""', 'report.kernel[0].layout: "" is not allowed'),
    "a weight": ('weight = "f32"', 'weight = "f31"', 'report.kernel[0].weight: "f31" is not allowed'),
    "a source": ('source = "ops.py"', 'source = "../../etc/passwd"', 'report.kernel[0].source: "../../etc/passwd" is'),
    "no source": ('source = "ops.py"', 'source = ""', 'report.kernel[0].source: "" is not allowed'),
    "a template": ('template = "embed_f32"', 'template = "f(); x"', 'report.kernel[0].template: "f(); x" is not'),
    "two of a form": ("[[report.fused]]", f"{FUSED}\n[[report.fused]]", '"rms_norm+gather norm_gather" stands there 2'),
    "two of a layout": (
        "rows = 1\n",
        'rows = 1\n\n[[report.layout]]\nname = "rows"\nrows = 2\n',
        "stands there 2 times",
    ),
    "an operand": ("operands = [0, 1, 3]", "operands = [0, 99]", "report.fused[0].operands: 99 is no operand of"),
    "no pair": ("same = [[0, 2]]", "same = [[0]]", "report.fused[0].same: [0] is no pair"),
    "a figure of a call": ('constants = ["columns"]', 'constants = ["7.columns"]', '"7.columns" is not allowed'),
    "one op": ('ops = ["rms_norm", "gather"]', 'ops = ["gather"]', "fewer than two ops"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_upsets_the_sums_is_refused_where_it_stands(name):
    old, new, words = REFUSED[name]
    text = MANIFEST + FUSED
    assert old in text
    with pytest.raises(ResolutionError) as caught:
        catalog.parse(text.replace(old, new, 1).encode(), "plugin.toml")
    assert words in str(caught.value)
    assert re.match(r"plugin\.toml:[1-9]\d+: ", str(caught.value))
