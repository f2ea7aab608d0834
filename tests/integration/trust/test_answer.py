"""A backend that a vendor signed, from its catalog to an answer; and what becomes of it when its key is revoked."""

import json
import shutil

import pytest

from tests.support.program import PROFILE, ROOT, pih

TESTED = '\n[[tested]]\nversion = "0.1.0"\npih = ">=0.1,<0.2"\nabi = 1\n'


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A catalog with PIH's CPU backend as a vendor's, which may read a device; a keyring; a profile that wants it."""
    folder = tmp_path_factory.mktemp("vendor")
    source, plugin = ROOT / "plugins" / "backend" / "cpu", folder / "shelf" / "npu"
    shutil.copytree(source, plugin, ignore=shutil.ignore_patterns("__pycache__"))
    (plugin / "pih_backend_cpu").rename(plugin / "pih_backend_npu")
    for path in plugin.rglob("*.*"):
        text = path.read_text().replace("pih_backend_cpu", "pih_backend_npu").replace("backend/cpu", "backend/npu")
        path.write_text(text.replace("devices = []", 'devices = ["/dev/null"]'))
    with (plugin / "plugin.toml").open("a") as manifest:
        manifest.write(TESTED)
    profile = (
        (ROOT / PROFILE).read_text().replace('plugin = "cpu"', 'plugin = "npu"').replace("smollm2-cpu", "smollm2-npu")
    )
    (folder / "p.toml").write_text(profile)
    return folder


@pytest.fixture(scope="module")
def run(place):
    """`pih` with the keyring of this place; the exit code must be `code`."""

    def run_with(*words, code=0):
        done = pih(*words, environment={"XDG_CONFIG_HOME": str(place / "config")}, check=False)
        assert done.returncode == code, done.stderr
        return done

    return run_with


def test_from_a_signed_catalog_to_an_answer_and_to_a_refusal(place, run):
    key, profile = place / "k.pem", ("--profile", place / "p.toml")
    fingerprint = run("key", "generate", key).stdout.strip()
    run("catalog", "sign", place / "shelf", "--key", key, "--name", "vendor")
    before = run("lock", *profile, code=4).stderr
    assert "the catalog has no backend plugin backend/npu" in before
    run("catalog", "add", place / "shelf", "--fingerprint", fingerprint)
    answer = run("run", *profile, "--prompt", "What is the capital of France?").stdout
    assert answer.strip() == "The capital of France is Paris."
    shown = {row["id"]: row for row in json.loads(run("inspect", *profile, "--json").stdout)["plugins"]}
    assert (shown["backend/npu"]["source"], shown["backend/npu"]["trust"]) == ("catalog vendor", fingerprint)
    assert shown["backend/npu"]["permissions"]["devices"] == ["/dev/null"]
    index = place / "shelf" / "catalog.json"
    index.write_text(index.read_text().replace('"yanked": ""', '"yanked": "wrong sums"'))
    run("catalog", "sign", place / "shelf", "--key", key)
    bundle = json.loads(run("build", *profile, "--json").stdout)["layout"]
    for words in (("explain", *profile), ("build", *profile), ("lock", *profile), ("inspect", bundle)):
        told = run(*words, "--json")
        assert json.loads(told.stdout)["withdrawn"] == {"backend/npu 0.1.0": "wrong sums"}, words
        assert "withdrawn backend/npu 0.1.0 by its publisher: wrong sums" in told.stderr, words
    run("catalog", "revoke", fingerprint, "--reason", "laptop stolen")
    stale = run("build", *profile, code=5).stderr
    assert f"its key {fingerprint} was revoked: laptop stolen" in stale
    assert f"its key {fingerprint} was revoked: laptop stolen" in run("lock", *profile, code=4).stderr
