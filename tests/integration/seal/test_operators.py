"""Sealing and verifying a real bundle, as operators type it."""

import json
import random
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest

from pih.inspect.opened import opened
from tests.support.program import PROFILE, pih

FLIPS = 12


def test_verify_says_who_vouches(sealed, tmp_path):
    said = pih("verify", sealed.layout, "--key", sealed.public).stdout
    assert f"vouched   by team.pem.pub ({sealed.fingerprint})" in said
    assert "integrity only: nobody vouches for it" in pih("verify", sealed.layout).stdout
    assert "integrity only: nobody vouches for it" in pih("verify", sealed.plain).stdout
    other = pih("key", "generate", tmp_path / "o.pem").stdout.strip()
    refused = pih("verify", sealed.layout, "--key", tmp_path / "o.pem.pub", check=False)
    assert refused.returncode == 8
    assert f"o.pem.pub ({other}) did not sign" in refused.stderr


def test_a_policy_and_a_second_signer(sealed, tmp_path):
    pih("key", "generate", tmp_path / "second.pem")
    pih("seal", sealed.layout, "-o", tmp_path / "both", "--key", tmp_path / "second.pem")
    lines = [json.loads(pih("key", "show", key, "--json").stdout) for key in (sealed.key, tmp_path / "second.pem")]
    text = "threshold = 2\n" + "".join(
        f'[[key]]\nname = "{name}"\npublic = "{line["public"]}"\nexpires = {expires}\n'
        for name, line, expires in zip(("one", "two"), lines, ("2999-01-01", "2999-01-01"), strict=True)
    )
    (tmp_path / "policy.toml").write_text(text)
    found = json.loads(pih("verify", tmp_path / "both", "--policy", tmp_path / "policy.toml", "--json").stdout)
    assert [key["name"] for key in found["vouched"]] == ["one", "two"]
    assert found["signers"] == sorted(line["fingerprint"] for line in lines)
    refused = pih("verify", sealed.layout, "--policy", tmp_path / "policy.toml", check=False)
    assert (refused.returncode, "1 of the 2 signatures" in refused.stderr) == (8, True)
    (tmp_path / "policy.toml").write_text(text.replace("2999", "1999", 1))
    refused = pih("verify", tmp_path / "both", "--policy", tmp_path / "policy.toml", check=False)
    assert (refused.returncode, "expired on 1999-01-01" in refused.stderr) == (8, True)


def test_an_archive_is_verified_like_the_layout(sealed, tmp_path):
    with tarfile.open(tmp_path / "sealed.tar", "w") as archive:
        archive.add(sealed.layout, ".")
    assert "vouched   by team.pem.pub" in pih("verify", tmp_path / "sealed.tar", "--key", sealed.public).stdout


def test_forms_of_a_bundle_that_cannot_be_sealed(tmp_path):
    (tmp_path / "root/pih").mkdir(parents=True)
    (tmp_path / "root/pih/bundle.json").write_text("{}")
    for bundle, said in (("podman:x", "nor a seal"), (tmp_path / "root", "nor a seal"), ("none", "no such bundle")):
        refused = pih("seal", "-o", "out", bundle, check=False)
        assert (refused.returncode, said in refused.stderr) == (2, True), refused.stderr


def judged(sealed, bundle):
    """A form of the bundle that keeps no seal: by itself, with a key, and with the layout that it came from."""
    alone = json.loads(pih("verify", bundle, "--json").stdout)
    whole = json.loads(pih("verify", sealed.layout, "--json").stdout)
    assert alone == {**whole, "digest": "", "documents": [], "signers": []}
    assert "signatures travel with the layout" in pih("verify", bundle).stdout
    refused = pih("verify", bundle, "--key", sealed.public, check=False)
    assert refused.returncode == 8
    assert f"pih: error: {bundle}: nobody vouches for it" in refused.stderr
    assert "--seal LAYOUT" in refused.stderr
    vouched = pih("verify", bundle, "--key", sealed.public, "--seal", sealed.layout)
    assert whole["digest"] in vouched.stdout
    assert "vouched   by team.pem.pub" in vouched.stdout


def test_an_installed_copy_is_judged_by_the_layout_that_it_came_from(sealed, tmp_path):
    prefix = tmp_path / "prefix"
    pih("export", sealed.layout, "-o", tmp_path / "carried.pih")
    subprocess.run(["sh", tmp_path / "carried.pih", "install", "--prefix", prefix], check=True, capture_output=True)
    judged(sealed, prefix)
    judged(sealed, prefix / "generations/1")
    plan = prefix / "current/root/pih/plan.json"
    plan.write_bytes(plan.read_bytes() + b" ")
    refused = pih("verify", prefix, check=False)
    assert (refused.returncode, "plan.json: has other bytes" in refused.stderr) == (8, True)


def test_an_image_in_podmans_store_is_judged_by_the_layout_that_it_came_from(sealed, podman):
    loaded = subprocess.run(
        f"tar -C {sealed.layout} -cf - . | podman load --quiet", shell=True, check=True, capture_output=True, text=True
    )
    judged(sealed, f"podman:{loaded.stdout.strip().rpartition(': ')[2]}")


def test_a_layout_has_a_seal_of_its_own(sealed):
    refused = pih("verify", sealed.layout, "--seal", sealed.layout, check=False)
    assert (refused.returncode, "leave --seal out" in refused.stderr) == (2, True)


def test_inspect_and_why_look_into_a_sealed_bundle(sealed):
    assert f"signed in the name of {sealed.fingerprint}" in pih("inspect", sealed.layout).stdout
    assert "no: unsigned" in pih("inspect", sealed.plain).stdout
    held = json.loads(pih("inspect", sealed.layout, "--json").stdout)
    assert held["seal"]["signers"] == [sealed.fingerprint]
    assert len(held["seal"]["documents"]) == 5
    plain = json.loads(pih("inspect", sealed.plain, "--json").stdout)
    assert plain["seal"] is None
    assert {**held, "seal": None} == plain
    assert "profiles/smollm2-cpu.toml" in pih("why", "libstdc++.so.6", sealed.layout).stdout


def test_sealing_needs_a_place_and_a_key_that_is_one(sealed, tmp_path):
    assert pih("build", "--profile", PROFILE, "--key", sealed.key, check=False).returncode == 2
    assert pih("seal", sealed.plain, "-o", tmp_path / "x", "--key", sealed.public, check=False).returncode == 2
    assert not (tmp_path / "x").exists()


def test_a_place_or_key_that_will_not_do_is_refused_before_anything_is_built(sealed, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/work").write_text("of years")
    for place, keys in ((tmp_path / "mine", ()), (sealed.layout, ()), (tmp_path / "x", ("--key", sealed.public))):
        own = {"PIH_STORE": str(tmp_path / "store")}
        refused = pih("build", "--profile", PROFILE, "-o", place, *keys, check=False, environment=own)
        assert refused.returncode == 2, refused.stderr
        assert not (tmp_path / "store").exists()
    assert (tmp_path / "mine/work").read_text() == "of years"


@pytest.fixture
def spoilt(sealed, tmp_path):
    """A copy whose largest files are links, until one is to be spoilt."""
    return shutil.copytree(sealed.layout, tmp_path / "copy", copy_function=lambda a, b: Path(b).hardlink_to(a))


def test_flipped_bits_of_the_real_bundle_are_refused(sealed, spoilt):
    """One in each layer, the weights too, and some anywhere."""
    every = sorted(path for path in spoilt.rglob("*") if path.is_file())
    largest = sorted(every, key=lambda path: -path.stat().st_size)[:6]
    choice = random.Random(random.randrange(1 << 32))
    for path in [*largest, *choice.sample(every, FLIPS - len(largest))]:
        bit = choice.randrange(path.stat().st_size * 8)
        kept = path.read_bytes()
        path.unlink()
        path.write_bytes(kept[: bit // 8] + bytes([kept[bit // 8] ^ 1 << bit % 8]) + kept[bit // 8 + 1 :])
        refused = pih("verify", spoilt, "--key", sealed.public, check=False)
        assert refused.returncode == 8, f"bit {bit} of {path.name}: {refused.stderr}"
        assert "Traceback" not in refused.stderr
        path.write_bytes(kept)
    assert pih("verify", spoilt, "--key", sealed.public).returncode == 0
    assert opened(spoilt) == opened(sealed.layout)
