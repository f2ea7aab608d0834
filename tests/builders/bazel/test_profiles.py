"""Every shipped profile is a target of Bazel's: the hub, in both forms, and the package name the same locks."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
SHIPPED = sorted(path.name.removesuffix(".lock.json") for path in (ROOT / "profiles").glob("*.lock.json"))


@pytest.mark.parametrize("file", ["MODULE.bazel", "WORKSPACE.bazel"])
def test_the_hub_has_every_lock(file):
    named = re.findall(r'"//profiles:([a-z0-9-]+)\.lock\.json"', (ROOT / file).read_text())
    assert sorted(named) == SHIPPED


def test_the_package_has_every_profile():
    text = (ROOT / "profiles/BUILD.bazel").read_text()
    named = re.findall(r'^    "([a-z0-9-]+)",$', text.partition("PROFILES = [")[2].partition("]")[0], re.MULTILINE)
    assert sorted(named) == SHIPPED
