"""Licences: of every component that a bundle can have, in SPDX's words."""

import tomllib
from pathlib import Path

import attrs
import pytest

from pih import catalog, licences
from pih import lock as locks
from pih.spdx import NOASSERTION, both, expression
from pih_runtime.errors import ResolutionError

ROOT = Path(__file__).parents[3]
SMOLLM2, QWEN3 = (locks.read(ROOT / "profiles" / f"{name}.lock.json") for name in ("smollm2-cpu", "qwen3-cpu"))


@pytest.mark.parametrize("path", sorted((ROOT / "profiles").glob("*.lock.json")), ids=lambda path: path.name)
def test_shipped_locks_know_every_licence_as_an_spdx_expression(path):
    found = licences.of_components(locks.read(path))
    assert {"pih", "model", "weights", "libc6", "uvicorn", "surface/openai"} <= found.keys()
    assert {name: text for name, text in found.items() if text == NOASSERTION or text != expression(text)} == {}


def test_text_files_are_under_the_licences_of_what_they_came_from():
    assert licences.of_components(SMOLLM2)["model"] == "Apache-2.0"  # all of it out of the weights' file
    found = licences.of_components(QWEN3)
    assert found["weights"] == "Apache-2.0"
    assert found["model"] == "Apache-2.0 AND MIT"  # the tokenizer's package, and the source tree's own


def test_what_an_artifact_does_not_say_is_not_told():
    unknown = tuple(attrs.evolve(item, licence=NOASSERTION) for item in SMOLLM2.artifacts)
    found = licences.of_components(attrs.evolve(SMOLLM2, artifacts=unknown))
    assert (found["weights"], found["model"], found["pih"]) == (NOASSERTION, NOASSERTION, "Apache-2.0")


def test_the_source_trees_licence_is_the_projects():
    assert tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["license"] == licences.OWN


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("mit", "MIT"),
        ("apache-2.0 or MIT", "Apache-2.0 OR MIT"),
        ("GPL-3.0-or-later with gcc-exception-3.1", "GPL-3.0-or-later WITH GCC-exception-3.1"),
        ("LicenseRef-Mine", "LicenseRef-Mine"),
        ("Apache License 2.0", "Apache-2.0"),
        ("BSD License", NOASSERTION),
        ("BSD", NOASSERTION),
        ("", NOASSERTION),
        ("see LICENSE", NOASSERTION),
        ("MIT AND", NOASSERTION),
        ("(" * 5000 + "MIT", NOASSERTION),
    ],
)
def test_expressions(text, wanted):
    assert expression(text) == wanted


def test_several_at_once():
    assert both(["MIT", "MIT"]) == "MIT"
    assert both(["MIT AND ISC", "ISC"]) == "MIT AND ISC"
    assert both(["MIT OR ISC", "0BSD"]) == "(MIT OR ISC) AND 0BSD"
    assert both(["MIT", NOASSERTION]) == both([]) == NOASSERTION


def test_a_plugins_licence_is_an_expression_or_left_out():
    raw = (ROOT / "plugins/health/probe/plugin.toml").read_bytes()
    assert catalog.parse(raw, "p").licence == "Apache-2.0"
    assert catalog.parse(raw.replace(b'licence = "Apache-2.0"\n', b""), "p").licence == NOASSERTION
    with pytest.raises(ResolutionError, match=r'licence: "free" is no SPDX expression') as failure:
        catalog.parse(raw.replace(b"Apache-2.0", b"free"), "p")
    assert failure.value.where == "p:6"
