"""Sealing a bundle, and the check of what comes out."""

import datetime as dt
import json

import pytest

from pih.bundle import layout as layouts
from pih.inspect.opened import opened
from pih.seal import attach, dsse, policy, referrers, verify
from pih.trust import keys
from pih_runtime.errors import SealError, UsageError
from tests.support import bundles

NOW = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)


def private(made, name):
    return keys.load_private(made / f"{name}.pem")


def public(made, *names):
    return policy.of_keys(tuple(made / f"{name}.pem.pub" for name in names))


def test_sealing_leaves_the_image_as_it_is(made, sealed):
    before, after = layouts.read(made / "layout"), layouts.read(sealed)
    assert (after.digest, after.manifest, after.layers) == (before.digest, before.manifest, before.layers)
    assert (sealed / "manifest.json").read_bytes() == (made / "layout" / "manifest.json").read_bytes()
    assert opened(sealed).contents == opened(made / "layout").contents


def test_what_is_attached_is_about_the_image(sealed):
    image, *others = bundles.index(sealed)["manifests"]
    assert {entry["artifactType"] for entry in others} == referrers.TYPES
    for entry in others:
        manifest = json.loads(bundles.blob(sealed, entry))
        assert manifest["subject"] == {key: image[key] for key in ("mediaType", "digest", "size")}
        assert manifest["artifactType"] == entry["artifactType"] == manifest["layers"][0]["mediaType"]
        assert bundles.blob(sealed, manifest["config"]) == b"{}"


def test_the_same_bundle_and_key_give_the_same_seal(made, sealed, tmp_path):
    attach.seal(made / "layout", tmp_path / "again", [private(made, "a")])
    assert (tmp_path / "again" / "index.json").read_bytes() == (sealed / "index.json").read_bytes()


def test_a_seal_is_verified_by_its_key_and_no_other(made, sealed):
    found = verify.whole(sealed)
    assert [key.name for key in verify.vouched(found, public(made, "a"), NOW).vouched] == ["a.pem.pub"]
    assert found.signers == (keys.fingerprint(keys.load_public(made / "a.pem.pub")),)
    with pytest.raises(SealError, match=r"has 0 of the 1 signatures that it needs; b.pem.pub .* did not sign"):
        verify.vouched(found, public(made, "b"), NOW)
    with pytest.raises(SealError, match=r"has 1 of the 2 signatures that it needs; b.pem.pub .* did not sign"):
        verify.vouched(found, public(made, "a", "b"), NOW)


def test_what_nobody_sealed_or_signed_is_vouched_for_by_nobody(made, layout, tmp_path):
    found = verify.whole(layout)
    assert (found.documents, found.signers) == ({}, ())
    with pytest.raises(SealError, match="it was never sealed"):
        verify.vouched(found, public(made, "a"), NOW)
    attach.seal(layout, tmp_path / "unsigned", [])
    found = verify.whole(tmp_path / "unsigned")
    assert (len(found.documents), found.signers) == (5, ())
    with pytest.raises(SealError, match="0 of the 1 signatures"):
        verify.vouched(found, public(made, "a"), NOW)


def test_a_second_signer_adds_a_signature_and_changes_no_statement(made, sealed, tmp_path):
    attach.seal(sealed, tmp_path / "both", [private(made, "b")])
    found = verify.whole(tmp_path / "both")
    assert len(verify.vouched(found, public(made, "a", "b"), NOW).vouched) == 2
    before = verify.whole(sealed).envelopes
    assert {kind: item.payload for kind, item in found.envelopes.items()} == {
        kind: item.payload for kind, item in before.items()
    }
    attach.seal(tmp_path / "both", tmp_path / "again", [private(made, "a")])
    assert (tmp_path / "again" / "index.json").read_bytes() == (tmp_path / "both" / "index.json").read_bytes()
    assert {path.name for path in (tmp_path / "both").rglob("*")} == {
        path.name for path in (tmp_path / "again").rglob("*")
    }


def test_a_sealed_layout_may_be_written_over_itself(made, sealed):
    attach.seal(sealed, sealed, [private(made, "b")])
    verify.vouched(verify.whole(sealed), public(made, "a", "b"), NOW)


def test_a_damaged_bundle_is_not_sealed(made, layout, tmp_path):
    path = max((layout / "blobs/sha256").iterdir(), key=lambda item: item.stat().st_size)
    data = bytearray(path.read_bytes())
    data[600] ^= 1
    path.chmod(0o644)
    path.write_bytes(data)
    with pytest.raises(SealError):
        attach.seal(layout, tmp_path / "out", [private(made, "a")])
    assert not (tmp_path / "out").exists()


def test_no_other_folder_is_replaced(made, layout, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter.txt").write_text("x")
    with pytest.raises(UsageError, match="is no image layout"):
        attach.seal(layout, tmp_path / "mine", [])
    assert (tmp_path / "mine" / "letter.txt").read_text() == "x"
    assert not list(tmp_path.glob(".mine*"))


def test_a_signature_of_another_payload_is_named(made, sealed):
    """The id is that of the key, the signature is not: as when somebody signs in another's name."""
    found = verify.whole(sealed)
    kind, envelope = next(iter(found.envelopes.items()))
    forged = dsse.Envelope(envelope.payload, (dsse.Signature(envelope.signatures[0].keyid, bytes(64)),))
    with pytest.raises(SealError, match=r"the signature of a.pem.pub .* is not right"):
        verify.vouched(
            verify.Verified(found.image, found.documents, {**found.envelopes, kind: forged}), public(made, "a"), NOW
        )


def test_different_keys_under_different_statements_do_not_add_up(made, layout, tmp_path):
    """One of two keys is wanted: but the same one, under all of them."""
    attach.seal(layout, tmp_path / "x", [private(made, "a")])
    attach.seal(layout, tmp_path / "y", [private(made, "b")])
    one, other = (verify.whole(tmp_path / name) for name in "xy")
    kind = next(iter(one.envelopes))
    mixed = verify.Verified(one.image, one.documents, {**one.envelopes, kind: other.envelopes[kind]})
    wanted = policy.Policy(1, public(made, "a", "b").keys)
    assert verify.vouched(one, wanted, NOW).vouched
    with pytest.raises(SealError, match="signed by different keys"):
        verify.vouched(mixed, wanted, NOW)
