"""Whom to believe: each case is a folder of publisher and user, and the words that the user then reads."""

import hashlib
import json

import attrs
import pytest

from pih import pins, stale, trust
from pih.resolve import locking
from pih.trust import add, content, index, keyring, keys, publish, sign
from pih_runtime.errors import LockError, ResolutionError, SealError, UsageError
from tests.unit.trust import made

PINS = pins.load(made.ROOT)
PATH = '\n[[plugins]]\npath = "{}"\n'
LOCAL = PATH + 'trust = "local"\n'


def never(what):
    raise AssertionError(f"asked for {what}")


def refusal(tmp_path, entries, ring=None):
    """The words of a lock that fails."""
    with pytest.raises(ResolutionError) as caught:
        _lock(tmp_path, entries, ring)
    return str(caught.value)


def _lock(tmp_path, entries, ring=None):
    known = made.catalog_of(tmp_path, entries, ring)
    return locking.lock(made.intent(tmp_path, entries), known, PINS, None, fetch=never, pin=never)


def test_unsigned_is_refused_unless_the_profile_says_so(tmp_path):
    made.plugin(tmp_path / "npu")
    words = refusal(tmp_path, PATH.format("npu"))
    assert "backend/npu 0.1.0 (npu) is refused: it is not signed" in words
    assert 'to fix: trust this place in the profile: [[plugins]] path = "npu", trust = "local"' in words
    found = _lock(tmp_path, LOCAL.format("npu"))
    (plugin,) = (item for item in found.plugins if item.id == "backend/npu")
    assert (plugin.source, plugin.trust, plugin.artifact) == ("npu", "local", "plugin/backend/npu")
    assert plugin.permissions.devices == ("/dev/npu0",)


def test_steps_unpack_the_archive_that_the_lock_names(tmp_path):
    made.plugin(tmp_path / "npu")
    found = _lock(tmp_path, LOCAL.format("npu"))
    (artifact,) = (item for item in found.artifacts if item.kind == "plugin")
    assert artifact.purls == ("pkg:generic/plugin?path=npu",)
    steps = {step.id: step for step in found.build.steps}
    for name in ("app", "imports"):
        assert artifact.name in steps[name].artifacts
        assert steps[name].params["plugins"] == {
            artifact.name: {"plugins/backend/npu/pih_backend_npu": "pih_backend_npu"}
        }
        assert not [tree for tree in steps[name].trees if "npu" in tree]
    assert "plugins" not in steps["base"].params


def test_a_key_of_the_keyring_is_believed(tmp_path):
    key = made.key(tmp_path)
    publish.sign_plugin(made.plugin(tmp_path / "npu"), key)
    found = _lock(tmp_path, PATH.format("npu"), made.believing(key))
    (plugin,) = (item for item in found.plugins if item.id == "backend/npu")
    assert plugin.trust == keys.fingerprint(keys.public_of(key))


def test_a_signature_of_one_thing_is_none_of_another(tmp_path):
    key = made.key(tmp_path)
    digest = "0" * 64
    signature = sign.sign(key, "catalog", digest)
    assert sign.made(signature.key, "catalog", digest, signature)
    assert not sign.made(signature.key, "plugin", digest, signature)
    assert not sign.made(signature.key, "catalog", "1" * 64, signature)


def test_a_withdrawn_release_is_passed_over(tmp_path):
    key = made.key(tmp_path)
    shelf = made.vendor(tmp_path / "shelf", key, ("a", {"version": "0.1.0"}), ("b", {"version": "0.2.0"}))
    made.withdraw(shelf, key, "wrong sums", "0.2.0")
    found = _lock(tmp_path, PATH.format("shelf"), made.believing(key))
    assert [item.version for item in found.plugins if item.id == "backend/npu"] == ["0.1.0"]
    (shelf / "a" / "plugin.toml").unlink()
    publish.sign_catalog(shelf, "", key)
    assert "wrong sums" in refusal(tmp_path, PATH.format("shelf"), made.believing(key))


@pytest.mark.parametrize("path", ["/etc", "../x", "a/../../x"])
def test_an_index_cannot_name_what_lies_elsewhere(tmp_path, path):
    shelf = made.vendor(tmp_path / "shelf", made.key(tmp_path), ("a", {}))
    data = json.loads((shelf / "catalog.json").read_text())
    data["plugins"][0]["path"] = path
    (shelf / "catalog.json").write_text(json.dumps(data))
    with pytest.raises(ResolutionError, match="is not below the catalog"):
        index.read(shelf)


def test_the_names_of_built_in_plugins_are_taken(tmp_path):
    made.plugin(tmp_path / "npu", version="9.9.9", text=made.MANIFEST.replace("backend/npu", "backend/cpu"))
    known = made.catalog_of(tmp_path, LOCAL.format("npu"))
    assert [item.why for item in known.refused] == ["that id is a plugin of PIH's own"]
    assert [item.version for item in known.plugins if item.id == "backend/cpu"] == ["0.1.0"]


def test_what_the_profile_names_is_not_passed_over(tmp_path):
    """Each entry must have something that may be chosen; a release that does not fit beside one that does is none."""
    made.plugin(tmp_path / "mine", text=made.MANIFEST.replace("backend/npu", "backend/cpu"))
    made.plugin(tmp_path / "npu")
    made.plugin(tmp_path / "shelf" / "new", version="0.2.0", pih=">=0.9")
    made.plugin(tmp_path / "shelf" / "now", version="0.1.0")
    good = LOCAL.format("shelf")
    trust.check_named(made.intent(tmp_path, good), made.catalog_of(tmp_path, good))
    for entry, why in ((LOCAL.format("mine"), "that id is a plugin of PIH's own"), (PATH.format("npu"), "not signed")):
        entries = good + entry
        intent = made.intent(tmp_path, entries)
        with pytest.raises(ResolutionError, match=why) as caught:
            trust.check_named(intent, made.catalog_of(tmp_path, entries))
        assert caught.value.where == f"{intent.path}:{intent.lines['plugins', 1]}"


def test_nothing_from_outside_takes_a_place_unasked(tmp_path):
    """A higher version of a capability that PIH's own plugin serves."""
    text = made.MANIFEST.replace("backend/npu", "memory/mine").replace('"backend"', '"memory"')
    text = text.replace('"backend.device" = "1.0"', '"memory.pages" = "1.0"').partition("[requires]")
    made.plugin(tmp_path / "npu", version="9.9.9", text=text[0] + text[2][text[2].index("[runtime]") :])
    entries = LOCAL.format("npu")
    known = made.catalog_of(tmp_path, entries)
    assert [item.id for item in known.plugins if item.id == "memory/mine"]
    found = locking.lock(made.intent(tmp_path, entries, "cpu"), known, PINS, None, fetch=never, pin=never)
    assert {item.id for item in found.plugins if item.kind == "memory"} == {"memory/paged"}


def test_a_refused_plugin_does_not_hide_why_another_is_out(tmp_path):
    key = made.key(tmp_path)
    made.vendor(tmp_path / "shelf", key, ("a", {"version": "0.1.0"}), ("b", {"version": "0.2.0", "pih": ">=9"}))
    manifest = tmp_path / "shelf" / "a" / "plugin.toml"
    manifest.write_text(manifest.read_text() + '\n[target]\narch = ["aarch64"]\n')
    publish.sign_catalog(tmp_path / "shelf", "", key)
    words = refusal(tmp_path, PATH.format("shelf"), made.believing(key))
    assert "backend/npu 0.1.0 is out: " in words
    assert "\n  Besides, backend/npu 0.2.0 (shelf) is refused: it was tested with PIH >=9" in words
    assert ", or take backend/npu 0.1.0" in words


def test_two_places_with_other_files_of_one_version(tmp_path):
    made.plugin(tmp_path / "a")
    made.plugin(tmp_path / "b")
    (tmp_path / "b" / "pih_backend_npu" / "more.py").write_text("")
    known = made.catalog_of(tmp_path, LOCAL.format("a") + LOCAL.format("b"))
    assert [item.why for item in known.refused] == ["a has other files of the same version"]


def test_a_lock_says_what_was_withdrawn_since_of_its_own_files_alone(tmp_path):
    key = made.key(tmp_path)
    shelf = made.vendor(tmp_path / "shelf", key, ("a", {}))
    ring = add.accepted(add.offer(shelf, keyring.Keyring()), keyring.Keyring())
    found = _lock(tmp_path, "", ring)
    assert stale.withdrawn(found, made.catalog_of(tmp_path, "", ring, found)) == {}
    made.withdraw(shelf, key, "wrong sums")
    assert stale.withdrawn(found, made.catalog_of(tmp_path, "", ring, found)) == {"backend/npu 0.1.0": "wrong sums"}
    (shelf / "a" / "pih_backend_npu" / "more.py").touch()
    publish.sign_catalog(shelf, "", key)
    assert stale.withdrawn(found, made.catalog_of(tmp_path, "", ring, found)) == {}


def test_a_stale_lock_says_what_became_of_the_place_that_it_took(tmp_path):
    """Another place has the same release, refused for another reason, and comes first."""
    old, new = made.key(tmp_path, "old"), made.key(tmp_path, "new")
    first = made.vendor(tmp_path / "first", old, ("a", {}))
    second = made.vendor(tmp_path / "second", old, ("a", {}))
    ring = add.accepted(add.offer(first, keyring.Keyring(), "first"), keyring.Keyring())
    publish.rotate(second, old, new)
    ring = add.accepted(add.offer(second, ring, "second"), ring)
    found = _lock(tmp_path, "", ring)
    ring = add.revoked(ring, keys.fingerprint(keys.public_of(new)), "stolen")
    with pytest.raises(LockError, match=r"backend/npu 0.1.0 is refused: its key .* was revoked: stolen"):
        stale.check(found, made.intent(tmp_path, ""), made.catalog_of(tmp_path, "", ring, found))


def test_an_added_catalog_serves_every_profile_and_no_path_of_it_is_locked(tmp_path):
    key = made.key(tmp_path)
    shelf = made.vendor(tmp_path / "shelf", key, ("a", {}))
    ring = add.accepted(add.offer(shelf, keyring.Keyring()), keyring.Keyring())
    found = _lock(tmp_path, "", ring)
    (artifact,) = (item for item in found.artifacts if item.kind == "plugin")
    assert artifact.purls == ("pkg:generic/plugin?catalog=vendor&file=a",)
    assert [item.source for item in found.plugins if item.id == "backend/npu"] == ["catalog vendor"]


def test_a_broken_catalog_breaks_no_deployment_that_does_not_want_it(tmp_path):
    key = made.key(tmp_path)
    shelf = made.vendor(tmp_path / "shelf", key, ("a", {}))
    ring = add.accepted(add.offer(shelf, keyring.Keyring()), keyring.Keyring())
    (shelf / "catalog.json").write_text("{")
    known = made.catalog_of(tmp_path, "", ring)
    assert [item.id for item in known.refused] == ["vendor"]
    found = locking.lock(made.intent(tmp_path, "", "cpu"), known, PINS, None, fetch=never, pin=never)
    assert not [item for item in found.artifacts if item.kind == "plugin"]


def test_a_broken_plugin_spoils_no_other_of_its_place(tmp_path):
    """In a folder that the profile names, and in a catalog, whichever comes first."""
    key = made.key(tmp_path)
    other = made.MANIFEST.replace("backend/npu", "backend/aaa")
    shelf = made.vendor(tmp_path / "shelf", key, ("b", {}), ("a", {"text": other}), ("c", {"version": "0.2.0"}))
    ring = add.accepted(add.offer(shelf, keyring.Keyring()), keyring.Keyring())
    for name in ("a", "c"):
        (shelf / name / "plugin.toml").write_text("id = ")
    known = made.catalog_of(tmp_path, "", ring)
    assert list(known.origins) == [("backend/npu", "0.1.0")]
    assert [(item.id, item.version) for item in known.refused] == [("backend/aaa", "0.1.0"), ("backend/npu", "0.2.0")]
    with pytest.raises(SealError, match=r"backend/aaa 0.1.0: .*not TOML"):
        add.verified(shelf, ring)
    for name in ("catalog.json", "catalog.json.sig"):
        (shelf / name).unlink()
    known = made.catalog_of(tmp_path, LOCAL.format("shelf"))
    assert list(known.origins) == [("backend/npu", "0.1.0")]
    assert [(item.id, item.source) for item in known.refused] == [("a", "shelf/a"), ("c", "shelf/c")]
    (shelf / "b" / "plugin.toml").write_text("id = ")
    assert "\n  and b (shelf/b) is refused: " in refusal(tmp_path, LOCAL.format("shelf"))


def test_a_new_key_that_the_old_one_vouches_for_takes_its_place(tmp_path):
    old, new = made.key(tmp_path, "old"), made.key(tmp_path, "new")
    shelf = made.vendor(tmp_path / "shelf", old, ("a", {}))
    ring = add.accepted(add.offer(shelf, keyring.Keyring()), keyring.Keyring())
    publish.rotate(shelf, old, new)
    name = keys.fingerprint(keys.public_of(new))
    assert f"it is signed by {name}, which is not in your keyring" in refusal(tmp_path, "", ring)
    offered = add.offer(shelf, ring)
    assert offered.before is not None
    assert offered.before.fingerprint == keys.fingerprint(keys.public_of(old))
    ring = add.accepted(offered, ring)
    assert {key.state for key in ring.keys if key.fingerprint != name} == {"rotated"}
    assert _lock(tmp_path, "", ring)
    publish.sign_catalog(shelf, "", old)
    with pytest.raises(ResolutionError, match="was replaced by"):
        add.offer(shelf, ring)


def tampered(shelf, _key):
    path = shelf / "catalog.json"
    path.write_text(path.read_text().replace('"yanked": ""', '"yanked": "x"'))


def tampered_plugin(shelf, _key):
    (shelf / "a" / "pih_backend_npu" / "more.py").touch()


def unsigned(shelf, _key):
    (shelf / "catalog.json.sig").unlink()


@pytest.mark.parametrize("change", [tampered, tampered_plugin, unsigned])
def test_a_new_key_signs_nothing_that_the_old_one_has_not(tmp_path, change):
    old, new = made.key(tmp_path, "old"), made.key(tmp_path, "new")
    shelf = made.vendor(tmp_path / "shelf", old, ("a", {}))
    change(shelf, old)
    before = {path: path.read_bytes() for path in shelf.rglob("*") if path.is_file()}
    with pytest.raises(SealError) as caught:
        publish.rotate(shelf, old, new)
    assert caught.value.exit_code == 8
    assert before == {path: path.read_bytes() for path in shelf.rglob("*") if path.is_file()}


def test_only_the_key_that_signed_a_catalog_vouches_for_the_next(tmp_path):
    old, new, other = (made.key(tmp_path, name) for name in ("old", "new", "other"))
    shelf = made.vendor(tmp_path / "shelf", old, ("a", {}))
    with pytest.raises(UsageError, match="not with this key"):
        publish.rotate(shelf, other, new)
    with pytest.raises(UsageError, match="is signed with that key already"):
        publish.rotate(shelf, old, old)
    text = (shelf / "catalog.json").read_bytes()
    publish.rotate(shelf, old, new)
    assert (shelf / "catalog.json").read_bytes() == text
    with pytest.raises(UsageError, match="the catalog has left that key"):
        publish.rotate(shelf, new, old)


def test_a_revoked_key_vouches_for_nobody_and_cannot_be_added_again(tmp_path):
    old, new = made.key(tmp_path, "old"), made.key(tmp_path, "new")
    shelf = made.vendor(tmp_path / "shelf", old, ("a", {}))
    ring = add.accepted(add.offer(shelf, keyring.Keyring()), keyring.Keyring())
    ring = add.revoked(ring, keys.fingerprint(keys.public_of(old)), "stolen")
    with pytest.raises(ResolutionError, match="was revoked: stolen"):
        add.offer(shelf, ring)
    publish.rotate(shelf, old, new)
    assert add.offer(shelf, ring).before is None
    assert "was revoked: stolen" in refusal(tmp_path, PATH.format("shelf"), _with(ring, old, shelf))


def _with(ring, private, shelf):
    publish.sign_catalog(shelf, "", private)
    return attrs.evolve(ring, catalogs=())


def test_verify_names_what_is_wrong(tmp_path):
    key = made.key(tmp_path)
    shelf = made.vendor(tmp_path / "shelf", key, ("a", {}))
    assert [item.verdict.key for item in add.verified(shelf, made.believing(key))] == [
        keys.fingerprint(keys.public_of(key))
    ]
    (shelf / "a" / "pih_backend_npu" / "more.py").write_text("")
    with pytest.raises(SealError, match="its files are not those"):
        add.verified(shelf, made.believing(key))


def test_a_keyring_that_is_none_is_refused_with_its_path(tmp_path):
    path = keyring.path_of({"XDG_CONFIG_HOME": str(tmp_path)})
    path.parent.mkdir()
    for text in ("{", '{"schema": 1, "keyz": []}', '{"schema": 2}', "[" * 100_000):
        path.write_text(text)
        with pytest.raises(Exception, match="keyring") as caught:
            keyring.load({"XDG_CONFIG_HOME": str(tmp_path)})
        assert str(path) in str(caught.value)


def test_a_lock_is_stale_when_its_plugin_is_edited_or_believed_no_more(tmp_path):
    key = made.key(tmp_path)
    folder, entries, ring = made.plugin(tmp_path / "npu"), PATH.format("npu"), made.believing(key)
    publish.sign_plugin(folder, key)
    found, intent = _lock(tmp_path, entries, ring), made.intent(tmp_path, entries)
    (folder / "README.md").write_text("what the manifest does not name")
    stale.check(found, intent, made.catalog_of(tmp_path, entries, ring, found))
    revoked = made.believing(key, state="revoked", note="stolen")
    with pytest.raises(LockError, match="was revoked: stolen"):
        stale.check(found, intent, made.catalog_of(tmp_path, entries, revoked, found))
    (folder / "pih_backend_npu" / "more.py").write_text("")
    with pytest.raises(LockError, match="was changed afterwards"):
        stale.check(found, intent, made.catalog_of(tmp_path, entries, ring, found))
    publish.sign_plugin(folder, key)
    with pytest.raises(LockError, match="are others than those that were locked"):
        stale.check(found, intent, made.catalog_of(tmp_path, entries, ring, found))


def test_a_plugin_brings_pins_for_wheels_of_its_own(tmp_path):
    text = made.MANIFEST.replace("host_bytes", 'wheels = ["npu-driver", "numpy"]\nhost_bytes')
    folder = made.plugin(tmp_path / "npu", text=text)
    assert "npu-driver is not among this release's pinned artifacts" in refusal(tmp_path, LOCAL.format("npu"))
    wheel = {
        "version": "1.0",
        "kind": "wheel",
        "sha256": "1" * 64,
        "size": 1,
        "purls": ["pkg:pypi/npu-driver@1.0?file_name=npu_driver-1.0-py3-none-any.whl"],
        "licence": "MIT",
        "reasons": [],
    }
    pinned = [{"name": name, **wheel} for name in ("npu-driver", "numpy")]
    (folder / "pins.json").write_text(json.dumps({"schema": 1, "artifacts": pinned}))
    found = {item.name: item for item in _lock(tmp_path, LOCAL.format("npu")).artifacts}
    assert found["npu-driver"].sha256 == "1" * 64
    assert found["npu-driver"].reasons[0].endswith("backend/npu imports it")
    assert found["numpy"] == attrs.evolve(PINS.find("wheel", "numpy"), reasons=found["numpy"].reasons)
    (folder / "pins.json").write_text('{"schema": 1, "artifacts": [], "more": 1}')
    assert "pins.json of backend/npu 0.1.0: more: unknown key" in refusal(tmp_path, LOCAL.format("npu"))


def test_a_signed_archive_is_a_plugin_like_its_folder(tmp_path):
    key = made.key(tmp_path)
    publish.pack(made.plugin(tmp_path / "npu"), tmp_path / "npu.tar", key)
    ring = made.believing(key)
    (archived,) = made.catalog_of(tmp_path, PATH.format("npu.tar"), ring).origins.values()
    publish.sign_plugin(tmp_path / "npu", key)
    (folder,) = made.catalog_of(tmp_path, PATH.format("npu"), ring).origins.values()
    assert (archived.sha256, archived.size, archived.trust) == (folder.sha256, folder.size, folder.trust)
    assert archived.place == {"path": "npu.tar"}


@pytest.mark.parametrize(
    ("old", "new"), [(b'id = "backend', b'ie = "backend'), (b"[provides]", b"[provides!"), (b"ustar", b"ustas")]
)
def test_a_damaged_archive_is_told_as_one_and_not_as_its_author_would_mend_it(tmp_path, old, new):
    key = made.key(tmp_path)
    ring, path = made.believing(key), tmp_path / "shelf" / "npu.tar"
    path.parent.mkdir()
    publish.pack(made.plugin(tmp_path / "npu"), path, key)
    publish.sign_catalog(path.parent, "vendor", key)
    assert old in path.read_bytes()
    path.write_bytes(path.read_bytes().replace(old, new, 1))
    refusals = []
    for ask, place in ((add.verified, path), (add.offer, path), (add.verified, path.parent)):
        with pytest.raises((SealError, ResolutionError)) as caught:
            ask(place, ring)
        assert (ask is add.verified) == (caught.value.exit_code == 8)
        refusals.append(str(caught.value))
    refusals.append(refusal(tmp_path, PATH.format("shelf/npu.tar"), ring))
    for words in refusals:
        assert "it is not what ed25519:" in words or "its files are not those that" in words, words
        assert "again from its publisher" in words
        assert "add id" not in words


def test_a_signed_archive_that_cannot_be_read_as_it_was_signed_is_its_publishers_to_mend(tmp_path):
    key, path = made.key(tmp_path), tmp_path / "npu.tar"
    path.write_bytes(content.pack({"plugin.toml": b"id = 5"}))
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    path.with_name("npu.tar.sig").write_text(sign.text(sign.sign(key, "plugin", digest)))
    with pytest.raises(SealError, match="id: 5 is not a string"):
        add.verified(path, made.believing(key))


def test_a_signed_folder_with_a_broken_manifest_is_to_be_had_again(tmp_path):
    key = made.key(tmp_path)
    publish.sign_plugin(made.plugin(tmp_path / "npu"), key)
    manifest = tmp_path / "npu" / "plugin.toml"
    manifest.write_text(manifest.read_text().replace("id =", "ie =", 1))
    with pytest.raises(SealError, match="id: missing") as caught:
        add.verified(tmp_path / "npu", made.believing(key))
    assert caught.value.fix.startswith("get it again from its publisher; if that is you: ")


def test_a_folder_of_plugins_brings_each_of_them(tmp_path):
    for name in ("a", "b"):
        made.plugin(tmp_path / "mine" / name, text=made.MANIFEST.replace("backend/npu", f"backend/{name}"))
    known = made.catalog_of(tmp_path, LOCAL.format("mine"))
    assert {key: origin.place["path"] for key, origin in known.origins.items()} == {
        ("backend/a", "0.1.0"): "mine/a",
        ("backend/b", "0.1.0"): "mine/b",
    }
    (tmp_path / "empty").mkdir()
    with pytest.raises(ResolutionError, match="empty holds no plugin"):
        made.catalog_of(tmp_path, LOCAL.format("empty"))
