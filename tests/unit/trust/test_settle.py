"""Whose files a plugin's name and version stand for, where several places offer it."""

import shutil

import attrs
import pytest

from pih import lock as locks
from pih import pins, stale, trust
from pih.resolve import locking
from pih.trust import add, keyring, keys, publish
from pih_runtime.errors import LockError, ResolutionError
from tests.unit.trust import made

PINS = pins.load(made.ROOT)
NAMED = '\n[[plugins]]\npath = "{}"\ntrust = "local"\n'
OTHER = made.MANIFEST.replace("host_bytes = 1000", "host_bytes = 2000")


def never(what):
    raise AssertionError(f"asked for {what}")


class User:
    """Somebody with a folder for the profile, and a keyring."""

    def __init__(self, folder):
        self.folder, self.ring, self.entries = folder, keyring.Keyring(), ""

    def add(self, shelf, name):
        self.ring = add.accepted(add.offer(shelf, self.ring, name), self.ring)

    def catalog(self, lock=None):
        return made.catalog_of(self.folder, self.entries, self.ring, lock)

    def lock(self, before=None):
        intent = made.intent(self.folder, self.entries)
        found = locking.lock(intent, self.catalog(before), PINS, before, fetch=never, pin=never)
        trust.check_named(intent, self.catalog(before))
        return found

    def stale(self, lock):
        """Why the lock does not hold, '' where it does."""
        try:
            stale.check(lock, made.intent(self.folder, self.entries), self.catalog(lock))
        except LockError as problem:
            return problem.what
        return ""


def npu(lock):
    return next(item for item in lock.plugins if item.id == "backend/npu")


def without(lock):
    """The lock as `--upgrade backend/npu` starts from it."""
    return attrs.evolve(lock, plugins=tuple(item for item in lock.plugins if item.id != "backend/npu"))


def name_of(key):
    return keys.fingerprint(keys.public_of(key))


@pytest.fixture
def user(tmp_path):
    return User(tmp_path)


@pytest.fixture
def a(tmp_path):
    return made.key(tmp_path, "a")


@pytest.fixture
def b(tmp_path):
    return made.key(tmp_path, "b")


@pytest.fixture
def vendor(tmp_path, user, a):
    """A's catalog, which the user believes."""
    shelf = made.vendor(tmp_path / "vendor", a, ("npu", {}))
    user.add(shelf, "vendor")
    return shelf


def rival(tmp_path, key, **about):
    return made.vendor(tmp_path / "rival", key, ("npu", {"text": OTHER, **about}))


def test_the_place_that_the_profile_names_comes_before_any_catalog(tmp_path, user, a):
    user.add(made.vendor(tmp_path / "vendor", a, ("npu", {"version": "0.3.0"})), "rel")
    made.plugin(tmp_path / "mine")
    user.entries = NAMED.format("mine")
    found = user.lock()
    assert (npu(found).version, npu(found).source, npu(found).trust) == ("0.1.0", "mine", "local")
    assert npu(user.lock(without(found))) == npu(found)
    (tmp_path / "mine" / "pih_backend_npu" / "more.py").touch()
    assert user.stale(found) == "plugins: the files of backend/npu 0.1.0 are others than those that were locked"
    assert npu(user.lock(found)).trust == "local"


def test_naming_a_place_makes_a_lock_from_a_catalog_stale(tmp_path, user, vendor):
    found = user.lock()
    made.plugin(tmp_path / "mine", version="0.0.9")
    user.entries = NAMED.format("mine")
    words = "plugins: backend/npu 0.1.0 is refused: the profile names mine for backend/npu"
    assert user.stale(found) == words
    assert npu(user.lock(found)).version == "0.0.9"


def test_a_named_place_whose_release_does_not_fit_is_not_passed_over(tmp_path, user, vendor):
    """Though another plugin of that place may be chosen."""
    made.plugin(tmp_path / "mine" / "npu", pih=">=9")
    made.plugin(tmp_path / "mine" / "more", text=made.MANIFEST.replace("backend/npu", "backend/more"))
    user.entries = NAMED.format("mine")
    with pytest.raises(ResolutionError, match="it was tested with PIH >=9") as caught:
        user.lock()
    assert "(catalog vendor) is refused: the profile names mine/npu for backend/npu" in str(caught.value)


def test_of_two_plugins_that_would_serve_the_one_from_a_named_place_is_taken(tmp_path, user, a):
    text = made.MANIFEST.replace('"backend.device" = "1.0"', '"backend.device" = "1.0"\n"acme.fabric" = "1.0"')
    needy = made.MANIFEST.replace("[requires]", '[requires]\n"acme.fabric" = ">=1"')
    fabric = text.partition("[requires]")
    for folder, name, version in ((tmp_path / "mine", "one", "0.1.0"), (tmp_path / "vendor" / "x", "two", "9.0.0")):
        body = fabric[0].replace('"backend.device" = "1.0"\n', "") + "[runtime]" + fabric[2].partition("[runtime]")[2]
        body = body.replace("backend/npu", f"memory/{name}").replace('"backend"', '"memory"')
        made.plugin(folder, version=version, text=body)
    made.plugin(tmp_path / "npu", text=needy)
    publish.sign_catalog(tmp_path / "vendor", "vendor", a)
    user.add(tmp_path / "vendor", "vendor")
    user.entries = NAMED.format("npu") + NAMED.format("mine")
    found = user.lock()
    assert {item.id for item in found.plugins if item.source != "workspace"} == {"backend/npu", "memory/one"}


@pytest.mark.parametrize("name", ["aaa", "zzz"])
def test_what_is_locked_stays_whatever_another_publisher_offers(tmp_path, user, vendor, b, name):
    found = user.lock()
    user.add(rival(tmp_path, b), name)
    assert user.stale(found) == ""
    assert locks.to_json(user.lock(found)) == locks.to_json(found)


@pytest.mark.parametrize("name", ["aaa", "zzz"])
@pytest.mark.parametrize("signer", ["a", "b"])
def test_the_same_bytes_elsewhere_change_nothing(tmp_path, user, vendor, name, signer):
    found = user.lock()
    shutil.copytree(vendor, tmp_path / "mirror")
    publish.sign_catalog(tmp_path / "mirror", "mirror", made.key(tmp_path, signer))
    user.add(tmp_path / "mirror", name)
    assert user.stale(found) == ""
    assert locks.to_json(user.lock(found)) == locks.to_json(found)


@pytest.mark.parametrize("name", ["aaa", "zzz"])
def test_only_its_own_publisher_withdraws_a_plugin(tmp_path, user, vendor, a, b, name):
    found = user.lock()
    for signer, whose in (("c", "cat"), ("b", "rival")):
        shutil.copytree(vendor, tmp_path / whose)
        publish.sign_catalog(tmp_path / whose, whose, made.key(tmp_path, signer))
        made.withdraw(tmp_path / whose, made.key(tmp_path, signer), "evil")
        user.add(tmp_path / whose, name + whose)
    assert stale.withdrawn(found, user.catalog(found)) == {}
    assert npu(user.lock()).trust == name_of(a)
    shutil.copytree(vendor, tmp_path / "testing")
    publish.sign_catalog(tmp_path / "testing", "testing", a)
    made.withdraw(tmp_path / "testing", a, "wrong sums")
    user.add(tmp_path / "testing", "testing")
    assert stale.withdrawn(found, user.catalog(found)) == {"backend/npu 0.1.0": "wrong sums"}
    assert user.stale(found) == ""
    assert locks.to_json(user.lock(found)) == locks.to_json(found)


def test_a_copy_of_ones_own_is_nobodys_to_withdraw(tmp_path, user, vendor, a):
    made.plugin(tmp_path / "mine")
    user.entries = NAMED.format("mine")
    found = user.lock()
    made.withdraw(vendor, a, "old")
    assert stale.withdrawn(found, user.catalog(found)) == {}
    user.entries = ""
    assert stale.withdrawn(found, user.catalog(found)) == {}


def test_a_lock_leaves_a_publisher_only_when_that_is_asked_for(tmp_path, user, vendor, a, b):
    """Neither a higher version, nor the same one where the first is gone, is another publisher's way in."""
    found = user.lock()
    user.add(rival(tmp_path, b, version="9.0.0"), "rival")
    shutil.rmtree(vendor / "npu")
    made.plugin(vendor / "next", version="0.2.0")
    publish.sign_catalog(vendor, "", a)
    assert "the catalog has 0.2.0" in user.stale(found)
    assert (npu(user.lock(found)).version, npu(user.lock(found)).trust) == ("0.2.0", name_of(a))
    user.ring = add.removed(user.ring, "vendor")
    assert "the catalog has no such plugin any more" in user.stale(found)
    with pytest.raises(ResolutionError) as caught:
        user.lock(found)
    words = f"it is signed by {name_of(b)}, and backend/npu was locked on the word of {name_of(a)}"
    assert f"backend/npu 9.0.0 (catalog rival) is refused: {words}" in str(caught.value)
    assert "pih lock --upgrade backend/npu" in caught.value.fix
    assert npu(user.lock(without(found))).trust == name_of(b)


def test_a_publisher_with_a_new_key_keeps_its_plugins(tmp_path, user, vendor, a, b):
    found = user.lock()
    publish.rotate(vendor, a, b)
    user.add(vendor, "vendor")
    assert "was trusted on the word of" in user.stale(found)
    assert npu(user.lock(found)).trust == name_of(b)


def test_a_withdrawn_number_with_other_files_is_not_the_locked_one(tmp_path, user, vendor, a):
    found = user.lock()
    (vendor / "npu" / "pih_backend_npu" / "more.py").touch()
    made.withdraw(vendor, a, "wrong sums")
    publish.sign_catalog(vendor, "", a)
    with pytest.raises(ResolutionError, match="it was withdrawn: wrong sums"):
        user.lock(found)


@pytest.mark.parametrize("version", ["0.1.0", "0.1"])
def test_other_files_of_one_version_are_for_the_user_to_choose_from(tmp_path, user, vendor, a, b, version):
    user.add(rival(tmp_path, b, version=version), "aaa")
    with pytest.raises(ResolutionError) as caught:
        user.lock()
    words = f"catalog aaa (signed by {name_of(b)}) and catalog vendor (signed by {name_of(a)}) have different files of"
    assert words in caught.value.what
    assert "[[plugins]] path = " in caught.value.fix
    assert "pih catalog remove" in caught.value.fix
    user.entries = NAMED.format("vendor").replace("local", "signed")
    assert npu(user.lock()).trust == name_of(a)
    user.entries = ""
    user.ring = add.removed(user.ring, "vendor")
    assert npu(user.lock()).trust == name_of(b)


def test_a_lock_that_says_no_place_holds_to_none(user, vendor):
    found = user.lock()
    carried = (attrs.evolve(item, purls=()) if item.kind == "plugin" else item for item in found.artifacts)
    assert user.stale(attrs.evolve(found, artifacts=tuple(carried))).endswith("lies elsewhere than when it was locked")


def test_what_nobody_chooses_needs_no_decision(tmp_path, user, vendor, a, b):
    made.plugin(vendor / "next", version="0.2.0")
    publish.sign_catalog(vendor, "", a)
    user.add(rival(tmp_path, b), "aaa")
    assert npu(user.lock()).version == "0.2.0"


def test_a_withdrawn_release_is_no_rival(tmp_path, user, vendor, a, b):
    user.add(rival(tmp_path, b), "aaa")
    made.withdraw(tmp_path / "rival", b, "wrong sums")
    assert npu(user.lock()).trust == name_of(a)


def test_of_the_same_bytes_the_first_catalog_by_name_is_taken(tmp_path, user, vendor, b):
    shutil.copytree(vendor, tmp_path / "mirror")
    publish.sign_catalog(tmp_path / "mirror", "mirror", b)
    user.add(tmp_path / "mirror", "mirror")
    assert (npu(user.lock()).source, npu(user.lock()).trust) == ("catalog mirror", name_of(b))
