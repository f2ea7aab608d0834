"""Keys in files, by `pih key`."""

import json

import pytest
from click.testing import CliRunner
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from pih.cli import key as commands
from pih.trust import keys
from pih_runtime.errors import UsageError


def pih(*words):
    result = CliRunner().invoke(commands.command, [str(word) for word in words], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def test_a_key_is_made_for_its_owner_and_shown_to_others(tmp_path):
    name = pih("generate", tmp_path / "k.pem").strip()
    assert keys.is_fingerprint(name)
    assert (tmp_path / "k.pem").stat().st_mode & 0o777 == 0o600
    for file in ("k.pem", "k.pem.pub"):
        assert json.loads(pih("show", tmp_path / file, "--json"))["fingerprint"] == name
    line = json.loads(pih("show", tmp_path / "k.pem", "--json"))["public"]
    assert line in (tmp_path / "k.pem.pub").read_text()
    assert keys.from_pem_body(line) == keys.load_public(tmp_path / "k.pem.pub")


@pytest.mark.parametrize("there", ["k.pem", "k.pem.pub"])
def test_no_file_is_written_over_and_no_half_of_a_pair_is_left(tmp_path, there):
    (tmp_path / there).write_text("mine")
    with pytest.raises(UsageError, match="is there already, and may be a key"):
        pih("generate", tmp_path / "k.pem")
    assert [path.name for path in tmp_path.iterdir()] == [there]
    assert (tmp_path / there).read_text() == "mine"


def test_what_is_no_key(tmp_path):
    (tmp_path / "x").write_text("hello")
    for load in (keys.load_private, keys.load_public, keys.load_either):
        with pytest.raises(UsageError, match="not a p"):
            load(tmp_path / "x")
        with pytest.raises(UsageError):
            load(tmp_path / "none")
    keys.generate(tmp_path / "k.pem")
    with pytest.raises(UsageError, match="this is a private key: it stays with its owner"):
        keys.load_public(tmp_path / "k.pem")
    with pytest.raises(UsageError, match="not a private key"):
        keys.load_private(tmp_path / "k.pem.pub")


def test_an_elliptic_key_of_another_curve_with_its_parameters(tmp_path):
    """As `openssl ecparam -genkey` writes it: two parts in one file, which are one key."""
    key = ec.generate_private_key(ec.SECP256R1()).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
    )
    path = tmp_path / "ec.pem"
    path.write_bytes(b"-----BEGIN EC PARAMETERS-----\nBggqhkjOPQMBBw==\n-----END EC PARAMETERS-----\n" + key)
    with pytest.raises(UsageError, match="not an ed25519 key"):
        keys.load_private(path)


@pytest.mark.parametrize("load", [keys.load_public, keys.load_private, keys.load_either])
def test_none_of_several_keys_in_a_file_is_left_out_in_silence(tmp_path, load):
    ends = "" if load is keys.load_private else ".pub"
    texts = []
    for name in "ab":
        keys.generate(tmp_path / name)
        texts.append((tmp_path / f"{name}{ends}").read_text())
    (tmp_path / "both").write_text("".join(texts))
    with pytest.raises(UsageError, match="holds several"):
        load(tmp_path / "both")
