"""The capability report of kernels/cpu says what the sources hold."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from pih_runtime.ops import KERNEL_OPS

ROOT = Path(__file__).resolve().parents[3]
REPORT = tomllib.loads((ROOT / "plugins" / "kernels" / "cpu" / "plugin.toml").read_text())["report"]
SOURCES = ROOT / "kernels" / "cpu"


def test_every_op_of_one_rank_has_a_kernel():
    assert {entry["op"] for entry in REPORT["kernel"]} == set(KERNEL_OPS) - {"add"}


@pytest.mark.parametrize("entry", REPORT["kernel"], ids=lambda entry: entry["template"])
def test_entry_names_templates_of_its_source_with_as_many_constants(entry):
    text = (SOURCES / entry["source"]).read_text()
    for name in (entry["template"], entry["reference"]):
        found = re.search(rf"template <([^>]*)>\s*\nvoid {name}\(", text)
        if found is None:
            # The embeddings of packed formats are one macro.
            assert re.search(r"void embed_##FORMAT", text)
            assert f"PIH_EMBED({entry['weight']})" in text
        else:
            assert len(found[1].split(",")) == len(entry["constants"])


@pytest.mark.parametrize("entry", REPORT["kernel"], ids=lambda entry: entry["template"])
def test_entry_refers_to_what_the_report_defines(entry):
    assert entry["activation"] in {"f32", *(one["name"] for one in REPORT["activation"])}
    assert entry["layout"] in {"", *(one["name"] for one in REPORT["layout"])}
    assert set(entry.get("multiple", {})) <= set(entry["constants"])
    assert set(entry.get("scratch", {})) <= set(entry["constants"])


def test_sizes_are_those_of_the_sources():
    assert REPORT["activation"] == [{"name": "i16g32", "group": 32, "bytes_per_group": 72}]
    assert "sizeof(Group) == 72" in (SOURCES / "i16g32.h").read_text()
    tile = next(one for one in REPORT["layout"] if one["name"] == "tile16")
    assert f"TILE = {tile['rows']};" in (SOURCES / "layouts.h").read_text()
