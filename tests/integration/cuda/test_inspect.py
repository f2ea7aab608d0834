"""`pih inspect` proves a bundle's device code: each entry is called, each call has one; other tools read the same."""

import hashlib
import json
import re
import shutil
import subprocess
import tarfile

import attrs
import pytest

from pih.inspect import device_code
from pih.inspect.opened import opened
from pih.lock import Device
from pih_runtime.errors import BuildError, SealError
from tests.support.program import pih

PROOF = "the plan calls every entry, and every call has its entry"


@pytest.fixture(scope="module")
def described(image):
    return json.loads(pih("inspect", image.path, "--json").stdout)["device_code"]


@pytest.fixture
def read(image, root):
    """The device code where some of the bundle's files are others; unless they are listed, the list is as it was.

    device: the target's, instead of the lock's.
    """
    bundle = opened(image.path)
    held, target = bundle.contents, bundle.lock.target

    def of(changes, *, listed=True, device=target.device):
        files = {name: (root / name).read_bytes() for name in device_code.MEMBERS} | changes
        digests = {f"/{name}": "sha256:" + hashlib.sha256(data).hexdigest() for name, data in files.items()}
        lines = [attrs.evolve(file, digest=digests.get(file.path, file.digest)) for file in held.files]
        shown = attrs.evolve(held, files=lines) if listed else held
        return device_code.of_bundle(shown, attrs.evolve(target, device=device), files.__getitem__, "test")

    return of


def test_every_entry_is_called_and_every_call_has_its_entry(described, root):
    assert (described["arch"], described["proof"]) == ("sm_89", PROOF)
    assert (described["uncalled"], described["missing"], described["amiss"]) == ([], [], [])
    calls = [call["symbol"] for call in json.loads((root / "pih/plan.json").read_bytes())["calls"]]
    assert {entry["symbol"] for entry in described["entries"]} == set(calls)
    assert all(entry["calls"] == calls.count(entry["symbol"]) for entry in described["entries"])
    assert described["code"] == sum(entry["code"] for entry in described["entries"]) < described["size"] < 1_000_000
    assert {entry["frame"] for entry in described["entries"]} == {0}


@pytest.mark.skipif(shutil.which("readelf") is None, reason="readelf is not installed (package binutils)")
def test_it_is_what_readelf_finds(described, root):
    """A cubin's code sections have the number of registers in the upper byte of their info."""
    said = subprocess.run(
        ["readelf", "-SW", root / "pih/kernels/pack.cubin"], capture_output=True, text=True, check=True
    ).stdout
    rows = re.findall(r"\] \.(text|nv\.shared)\.(\S+) +\w+ +\w+ \w+ (\w+) \w+ +\w* +\d+ +(\d+)", said)
    code = {name: (int(size, 16), int(info) >> 24) for kind, name, size, info in rows if kind == "text"}
    shared = {name: int(size, 16) for kind, name, size, _ in rows if kind != "text"}
    assert {entry["name"]: (entry["code"], entry["registers"]) for entry in described["entries"]} == code
    assert {entry["name"]: entry["shared"] for entry in described["entries"] if entry["shared"]} == shared


def test_every_form_of_the_bundle_says_the_same(described, image, root, tmp_path):
    with tarfile.open(tmp_path / "image.tar", "w") as tar:
        tar.add(image.path, ".")
    for form in (root, tmp_path / "image.tar"):
        assert json.loads(pih("inspect", form, "--json").stdout)["device_code"] == described


def test_people_and_the_page_are_told(image, tmp_path):
    text = pih("inspect", image.path, "--html", tmp_path / "page.html").stdout + pih("inspect", image.path).stdout
    assert re.search(rf"device code: 0\.\d\d MB for sm_89 in \d+ entries; {PROOF}\n", text)
    assert re.search(r"embed_bf16_n400_k64 +embed +1 +\d+ +\d+ +0 +0\n", text)
    page = (tmp_path / "page.html").read_text()
    assert f'"proof":"{PROOF}"' in page
    assert '"name":"embed_bf16_n400_k64"' in page


def test_why_the_cubin_is_there(image):
    told = pih("why", "pack.cubin", image.path).stdout
    assert "file /pih/kernels/pack.cubin: " in told
    assert "of plugin kernels/cuda" in told
    assert 'backend.plugin = "cuda"' in told


def test_an_entry_without_a_call_and_a_call_without_an_entry_are_named(read, root):
    plan = json.loads((root / "pih/plan.json").read_bytes())
    plan["calls"] = [call for call in plan["calls"] if call["op"] != "embed"]
    found = read({device_code.PLAN: json.dumps(plan).encode()})
    assert found.uncalled == ("embed_bf16_n400_k64",)
    assert found.proof == "embed_bf16_n400_k64 is called by nothing"
    table = json.loads((root / "pih/kernels/pack.json").read_bytes())
    table["symbols"]["embed_bf16_n400_k64"] = []
    found = read({device_code.TABLE: json.dumps(table).encode()})
    assert (found.uncalled, found.missing) == (("embed_bf16_n400_k64",), ("embed_bf16_n400_k64",))
    assert "embed_bf16_n400_k64 is called, and has no entry" in found.proof


def _an_entry_too_many(table):
    (first, *_) = table["symbols"].values()
    first.append({**first[-1], "entry": first[-1]["entry"] + "_more", "most_rows": 1 << 20})


def _swapped(table):
    first, second, *_ = table["symbols"]
    table["symbols"][first], table["symbols"][second] = table["symbols"][second], table["symbols"][first]


def _other_threads(table):
    next(iter(table["symbols"].values()))[0]["threads"] += 32


def _turned_round(table):
    next(rows for rows in table["symbols"].values() if len(rows) > 1).reverse()


def _other_device(table):
    table["sm"] = "sm_90"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (_an_entry_too_many, "_more is listed, and is not in the cubin"),
        (_swapped, r" is listed as one of \w+, which it is not"),
        (_other_threads, " is not launched as it says itself"),
        (_turned_round, r"the entries of \w+ are not in the order of their rows"),
        (_other_device, "the table of kernels is for sm_90"),
    ],
)
def test_the_workers_table_says_what_the_cubin_does(read, root, change, said):
    table = json.loads((root / "pih/kernels/pack.json").read_bytes())
    change(table)
    found = read({device_code.TABLE: json.dumps(table).encode()})
    assert found.amiss
    assert re.search(said, found.proof)


@pytest.mark.parametrize(
    ("device", "said"),
    [(Device(1, "sm_90", 23 << 30, ""), "sm_90"), (Device(1, "", 23 << 30, ""), "none"), (None, "none")],
)
def test_a_cubin_for_another_device_than_the_locks_is_told(read, device, said):
    """Pack and cubin agree with each other, and would not start on the target."""
    assert read({}, device=device).proof == f"the cubin is for sm_89, and the lock's device.sm is {said}"
    assert read({}).proof == PROOF


def test_damage_is_told(read, root):
    cubin = (root / "pih/kernels/pack.cubin").read_bytes()
    with pytest.raises(SealError, match=r"/pih/kernels/pack\.cubin is not the file that the bundle lists"):
        read({device_code.CUBIN: cubin[:-1]}, listed=False)
    with pytest.raises(BuildError, match="not a cubin"):
        read({device_code.CUBIN: cubin[: len(cubin) // 2]})
    for wrong in (b"[]", b"{", b'{"sm": "sm_89", "symbols": {"a": [1]}}'):
        with pytest.raises(SealError, match="not a table of kernels"):
            read({device_code.TABLE: wrong})
