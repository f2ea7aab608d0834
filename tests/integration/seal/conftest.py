"""The bundle of smollm2-cpu, sealed by `pih build` with a key of openssl's, and what is attached to it as files."""

import json
import shutil
import subprocess

import attrs
import pytest

from tests.support import bundles
from tests.support import podman as podmans
from tests.support.program import PROFILE, pih


@attrs.frozen
class Sealed:
    """layout: sealed. plain: as built. key: private, of openssl's making. documents: artifactType → file."""

    layout: object
    plain: object
    key: object
    fingerprint: str
    documents: dict

    @property
    def public(self):
        return self.key.with_name(f"{self.key.name}.pub")


@pytest.fixture(scope="session")
def sealed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("seal")
    key = folder / "team.pem"
    if not shutil.which("openssl"):
        pytest.skip("openssl is not installed")
    subprocess.run(["openssl", "genpkey", "-algorithm", "ed25519", "-out", key], check=True)
    subprocess.run(["openssl", "pkey", "-in", key, "-pubout", "-out", f"{key}.pub"], check=True)
    built = json.loads(pih("build", "--profile", PROFILE, "--json").stdout)["layout"]
    pih("build", "--profile", PROFILE, "-o", folder / "sealed", "--key", key)
    fingerprint = json.loads(pih("key", "show", key, "--json").stdout)["fingerprint"]
    documents = {}
    for kind, data in bundles.attached(folder / "sealed").items():
        documents[kind] = folder / f"{kind.rpartition('/')[2]}.spdx.json"
        documents[kind].write_bytes(data)
    return Sealed(folder / "sealed", built, key, fingerprint, documents)


@pytest.fixture
def podman(tmp_path, monkeypatch):
    with podmans.environment(tmp_path / "podman") as environment:
        for name, value in environment.items():
            monkeypatch.setenv(name, value)

        def ask(*arguments):
            return subprocess.run(["podman", *map(str, arguments)], capture_output=True, text=True, check=True).stdout

        yield ask
