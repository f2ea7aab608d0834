"""`pih catalog`, as a user and as a publisher type it."""

import json

import pytest
from click.testing import CliRunner

from pih.cli import catalog as commands
from pih.cli import key as key_commands
from pih.trust import keys
from pih_runtime.errors import ResolutionError, SealError, UsageError
from tests.unit.trust import made


@pytest.fixture
def pih(tmp_path, monkeypatch):
    """Run `pih catalog …`; returns what it printed. Failures are raised."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))

    def run(*words):
        result = CliRunner().invoke(commands.command, [str(word) for word in words], catch_exceptions=False)
        assert result.exit_code == 0, result.output
        return result.output

    return run


@pytest.fixture
def shelf(tmp_path):
    """A signed catalog, and the fingerprint of its key."""
    key = made.key(tmp_path)
    return made.vendor(tmp_path / "shelf", key, ("a", {})), keys.fingerprint(keys.public_of(key))


def new_key(path):
    """The fingerprint of a key that was made there."""
    result = CliRunner().invoke(key_commands.command, ["generate", str(path)], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output.strip()


def test_adding_shows_the_fingerprint_and_wants_a_word(pih, shelf):
    path, fingerprint = shelf
    with pytest.raises(UsageError) as caught:
        pih("add", path)
    assert caught.value.fix.endswith(f"--fingerprint {fingerprint}")
    with pytest.raises(UsageError, match=f"it is signed by {fingerprint}, not by ed25519:0"):
        pih("add", path, "--fingerprint", "ed25519:0")
    assert json.loads(pih("keys", "--json"))["keys"] == []
    said = pih("add", path, "--fingerprint", fingerprint)
    assert f"vendor: 1 plugins, signed by {fingerprint}\n  backend/npu 0.1.0\n" in said
    assert pih("keys") == f"{fingerprint}  trusted   vendor\n"


def test_list_and_show_say_from_where_and_on_whose_word(pih, shelf):
    path, fingerprint = shelf
    pih("add", path, "--yes")
    rows = {row["id"]: row for row in json.loads(pih("list", "--json"))}
    assert rows["backend/npu"]["trust"] == fingerprint
    assert rows["backend/npu"]["source"] == "catalog vendor"
    assert rows["backend/cpu"]["trust"] == "built-in"
    shown = pih("show", "backend/npu")
    assert "permissions  network none, /dev/npu0" in shown
    assert "tested       0.1.0 with PIH >=0.1,<0.2, ABI 1" in shown
    with pytest.raises(UsageError) as caught:
        pih("show", "backend/npv")
    assert caught.value.fix == "did you mean backend/npu?"


def test_revoking_refuses_from_then_on(pih, shelf):
    path, fingerprint = shelf
    pih("add", path, "--yes")
    pih("revoke", fingerprint, "--reason", "laptop stolen")
    assert "revoked" in pih("keys")
    rows = {row["id"]: row for row in json.loads(pih("list", "--json"))}
    assert rows["backend/npu"] | {"sha256": ""} == {
        "id": "backend/npu",
        "version": "0.1.0",
        "source": "catalog vendor",
        "trust": "refused",
        "why": f"its key {fingerprint} was revoked: laptop stolen",
        "sha256": "",
    }
    with pytest.raises(ResolutionError, match="was revoked"):
        pih("add", path, "--yes")
    with pytest.raises(UsageError, match="is no fingerprint"):
        pih("revoke", "vendor", "--reason", "x")


def test_revoking_a_key_that_is_not_there_is_no_revocation(pih, shelf):
    path, fingerprint = shelf
    pih("add", path, "--yes")
    other = fingerprint[:-1] + ("0" if fingerprint[-1] != "0" else "1")
    with pytest.raises(UsageError, match="your keyring has no key") as caught:
        pih("revoke", other, "--reason", "x")
    assert caught.value.fix.startswith(f"did you mean {fingerprint}? ")
    assert "revoked" not in pih("keys")
    assert pih("revoke", other, "--reason", "x", "--unknown") == f"revoked {other}: x\n"
    assert pih("revoke", fingerprint, "--reason", "lost") == f"revoked {fingerprint} (vendor): lost\n"
    assert pih("keys").count("revoked") == 2


def test_show_tells_every_place_that_has_it(pih, shelf, tmp_path):
    path, fingerprint = shelf
    pih("add", path, "--yes")
    other = made.key(tmp_path, "other")
    name = keys.fingerprint(keys.public_of(other))
    for folder, text in (("same", made.MANIFEST), ("changed", made.MANIFEST.replace("1000", "2000"))):
        made.vendor(tmp_path / folder, other, ("a", {"text": text}))
        pih("add", tmp_path / folder, "--yes", "--name", folder)
    shown = pih("show", "backend/npu")
    assert f"\n  not decided  catalog vendor (signed by {fingerprint}) has other files of it\n" in shown
    assert "\n  from     catalog vendor\n  refused  catalog changed has other files of the same version\n" in shown
    pih("remove", "changed")
    assert f"\n  also in      catalog vendor (signed by {fingerprint})\n" in pih("show", "backend/npu")
    (row,) = json.loads(pih("show", "backend/npu", "--json"))["plugins"]
    assert (row["source"], row["trust"]) == ("catalog same", name)
    assert (row["also"], row["rivals"]) == ([f"catalog vendor (signed by {fingerprint})"], [])


def test_verify(pih, shelf):
    path, fingerprint = shelf
    with pytest.raises(SealError, match="which is not in your keyring") as caught:
        pih("verify", path)
    assert caught.value.exit_code == 8
    pih("add", path, "--yes")
    (row,) = json.loads(pih("verify", path, "--json"))
    assert (row["id"], row["trust"]) == ("backend/npu", fingerprint)


def test_what_was_withdrawn_is_shown(pih, shelf, tmp_path):
    path, _ = shelf
    pih("add", path, "--yes")
    assert "withdrawn" not in pih("show", "backend/npu") + pih("verify", path)
    made.withdraw(path, made.key(tmp_path), "wrong sums")
    assert "\n  withdrawn    wrong sums\n" in pih("show", "backend/npu")
    assert pih("verify", path).endswith("  withdrawn: wrong sums\n")
    assert json.loads(pih("verify", path, "--json"))[0]["withdrawn"] == "wrong sums"


def test_the_example_of_list_names_a_profile(pih):
    example = commands.command.commands["list"].epilog.rpartition(" ")[2]
    assert "backend/npu" in pih("list", "--profile", made.ROOT / example)


def test_removing_a_catalog_keeps_its_key(pih, shelf):
    path, fingerprint = shelf
    pih("add", path, "--yes")
    pih("remove", "vendor")
    assert "backend/npu" not in pih("list")
    assert fingerprint in pih("keys")
    with pytest.raises(UsageError, match="no catalog is called vendor"):
        pih("remove", "vendor")


def test_a_publisher_makes_a_key_an_archive_and_a_catalog(pih, tmp_path):
    made.plugin(tmp_path / "npu")
    fingerprint = new_key(tmp_path / "k.pem")
    (tmp_path / "shelf").mkdir()
    archive = tmp_path / "shelf" / "npu-0.1.0.tar"
    pih("sign", tmp_path / "npu", "--key", tmp_path / "k.pem", "--output", archive)
    pih("add", archive, "--fingerprint", fingerprint)
    assert json.loads(pih("verify", archive, "--json"))[0]["trust"] == fingerprint
    with pytest.raises(UsageError, match="a new catalog needs a name"):
        pih("sign", tmp_path / "shelf", "--key", tmp_path / "k.pem")
    pih("sign", tmp_path / "shelf", "--key", tmp_path / "k.pem", "--name", "vendor")
    assert json.loads(pih("verify", tmp_path / "shelf", "--json"))[0]["trust"] == fingerprint
    new = new_key(tmp_path / "new.pem")
    pih("add", tmp_path / "shelf", "--yes")
    pih("rotate", tmp_path / "shelf", "--key", tmp_path / "k.pem", "--new-key", tmp_path / "new.pem")
    assert f"its key takes the place of {fingerprint}, which vouches for it" in pih("add", tmp_path / "shelf", "--yes")
    states = {key["fingerprint"]: key["state"] for key in json.loads(pih("keys", "--json"))["keys"]}
    assert states == {fingerprint: "rotated", new: "trusted"}


def test_what_is_no_key(pih, tmp_path):
    (tmp_path / "k.pem").write_text("hello")
    with pytest.raises(UsageError, match="not a private key"):
        pih("sign", tmp_path, "--key", tmp_path / "k.pem")
