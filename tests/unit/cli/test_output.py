"""No command writes into the store or into a bundle."""

import pytest
from click.testing import CliRunner

from pih.cli import pih

WRITING = {
    "build": ("build", "--profile", "profiles/smollm2-cpu.toml", "-o", "{}"),
    "export": ("export", "none", "-o", "{}"),
    "page": ("inspect", "none", "--html", "{}"),
    "mirror": ("mirror", "export", "none", "-o", "{}"),
    "seal": ("seal", "none", "-o", "{}"),
    "weights": ("weights", "pack", "--profile", "profiles/qwen3-cpu.toml", "--output", "{}"),
    "weights artifact": ("weights", "pack", "--profile", "profiles/qwen3-cpu.toml", "--oci", "{}"),
    "size budget": ("size", "none", "--update", "--budget", "{}"),
    "key": ("key", "generate", "{}"),
    "plugin": ("plugin", "new", "npu", "--kind", "backend", "--output", "{}"),
    "catalog": ("catalog", "sign", "profiles", "--key", "none", "--output", "{}"),
}


@pytest.mark.parametrize("name", WRITING)
def test_nothing_is_written_into_a_bundle_or_the_store(tmp_path, monkeypatch, name):
    monkeypatch.setenv("PIH_STORE", str(tmp_path / "store"))
    places = {
        tmp_path / "layout" / "x": "is inside of the bundle",
        tmp_path / "installed" / "etc" / "x": "is inside of the bundle",
        tmp_path / "store" / "steps" / "x": "is in the store",
    }
    (tmp_path / "layout").mkdir()
    (tmp_path / "layout" / "oci-layout").write_text("{}")
    (tmp_path / "installed" / "pih").mkdir(parents=True)
    (tmp_path / "installed" / "pih" / "bundle.json").write_text("{}")
    before = sorted(tmp_path.rglob("*"))
    for place, said in places.items():
        run = CliRunner().invoke(pih, [word.format(place) for word in WRITING[name]])
        assert said in str(run.exception), (run.output, place)
    assert sorted(tmp_path.rglob("*")) == before


def test_a_plugin_is_not_written_into_a_bundle_that_one_stands_in(tmp_path, monkeypatch):
    (tmp_path / "oci-layout").write_text("{}")
    monkeypatch.chdir(tmp_path)
    run = CliRunner().invoke(pih, ["plugin", "new", "npu", "--kind", "backend"])
    assert "is inside of the bundle" in str(run.exception)
    assert [path.name for path in tmp_path.iterdir()] == ["oci-layout"]
