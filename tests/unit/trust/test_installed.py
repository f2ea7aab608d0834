"""Plugins in installed Python packages: found by their entry points, none of them imported."""

import sys

import pytest

from pih import trust
from pih.trust import find, keyring, keys, places, publish
from pih_runtime.errors import ProfileError, ResolutionError
from tests.unit.trust import made

PACKAGE = '\n[[plugins]]\npackage = "pih-npu"\n'


@pytest.fixture
def site(tmp_path, monkeypatch):
    """A folder of installed packages."""
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))
    return folder


def install(site, home=None, target="pih_npu.backend"):
    """What pip leaves of a package that holds the plugin; home: its files, where that is another folder."""
    about = site / "pih_npu-0.1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: pih-npu\nVersion: 0.1.0\n")
    (about / "entry_points.txt").write_text(f"[pih.plugins]\nnpu = {target}\n")
    package = (home or site) / "pih_npu"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise SystemExit('a build host imports no plugin to choose it')\n")
    return made.plugin(package / "backend")


def test_it_is_refused_until_the_profile_or_a_key_vouches_for_it(tmp_path, site):
    folder = install(site)
    known = made.catalog_of(tmp_path, PACKAGE)
    (refused,) = known.refused
    assert (refused.id, refused.source, refused.why) == ("backend/npu", "package pih-npu", "it is not signed")
    assert refused.fix == 'trust this place in the profile: [[plugins]] package = "pih-npu", trust = "local"'
    known = made.catalog_of(tmp_path, PACKAGE + 'trust = "local"\n')
    (origin,) = known.origins.values()
    assert (origin.trust, origin.place) == ("local", {"package": "pih-npu", "file": "pih_npu/backend"})
    key = made.key(tmp_path)
    publish.sign_plugin(folder, key)
    (origin,) = made.catalog_of(tmp_path, PACKAGE, made.believing(key)).origins.values()
    assert origin.trust == keys.fingerprint(keys.public_of(key))
    assert "pih_npu" not in sys.modules


@pytest.mark.parametrize("name", ["pih-npu", "pih_npu", "PIH.Npu"])
def test_its_name_is_what_registries_compare(tmp_path, site, name):
    install(site)
    known = made.catalog_of(tmp_path, PACKAGE.replace("pih-npu", name) + 'trust = "local"\n')
    assert [origin.trust for origin in known.origins.values()] == ["local"]
    assert known.refused == ()
    assert places.packed({"package": name, "file": "pih_npu/backend"}, tmp_path, {})


def test_one_that_is_signed_serves_every_profile(tmp_path, site):
    key = made.key(tmp_path)
    publish.sign_plugin(install(site), key)
    assert [item.id for item in made.catalog_of(tmp_path, "", made.believing(key)).plugins if "npu" in item.id]


def test_it_is_found_again_to_be_packed(tmp_path, site):
    folder = install(site)
    found = places.packed({"package": "pih-npu", "file": "pih_npu/backend"}, tmp_path, {})
    assert found == places.of_path(folder)
    assert places.packed({"package": "pih-other", "file": "pih_npu/backend"}, tmp_path, {}) is None


def test_one_installed_in_place_is_found_where_it_lies(tmp_path, site, monkeypatch):
    home = tmp_path / "home"
    folder = install(site, home)
    monkeypatch.syspath_prepend(str(home))
    (item,) = places.installed()
    assert item.folder == folder


def test_an_entry_point_that_leads_nowhere_breaks_no_one_else(tmp_path, site):
    install(site, target="pih_npu.gone")
    known = made.catalog_of(tmp_path, "")
    assert [(item.id, item.why) for item in known.refused] == [
        ("npu", "package pih-npu: its entry point npu names pih_npu/gone, which is no folder")
    ]
    entries = PACKAGE + 'trust = "local"\n'
    with pytest.raises(ResolutionError, match="which is no folder") as caught:
        trust.check_named(made.intent(tmp_path, entries), made.catalog_of(tmp_path, entries))
    assert caught.value.where.startswith(f"{tmp_path}/p.toml:")


def test_an_entry_point_that_leads_nowhere_spoils_no_other_of_its_package(tmp_path, site):
    install(site)
    points = site / "pih_npu-0.1.0.dist-info" / "entry_points.txt"
    points.write_text(points.read_text() + "also = pih_npu.gone\n")
    entries = PACKAGE + 'trust = "local"\n'
    known = made.catalog_of(tmp_path, entries)
    assert list(known.origins) == [("backend/npu", "0.1.0")]
    assert [item.id for item in known.refused] == ["also"]
    trust.check_named(made.intent(tmp_path, entries), known)


def test_a_package_that_is_not_installed(tmp_path, site):
    with pytest.raises(ProfileError, match="no installed package pih-npu declares"):
        made.catalog_of(tmp_path, PACKAGE)


def test_a_broken_manifest_of_an_installed_package_is_only_reported(tmp_path, site):
    (install(site) / "plugin.toml").write_text("id = \n")
    (refused,) = [item for item in find.everywhere(keyring.Keyring()) if not isinstance(item, find.Found)]
    assert "not TOML" in refused.why
