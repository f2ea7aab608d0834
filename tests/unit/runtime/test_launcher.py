"""What is checked before anything of the worker is imported: the userland and the runtime's own modules."""

import hashlib
import json
import os
import signal

import pytest

pytest.importorskip("_sha256", reason="the launcher is for the Python that images have, 3.11")

from pih_runtime import launcher
from tests.support.rot import rotten

FILES = ("usr/lib/libcrypto.so.3", "usr/bin/python3.11", "usr/share/x", "pih/lib/pih_runtime/worker.pyc")


@pytest.fixture
def root(tmp_path):
    lines = []
    for name in (*FILES, "pih/model/text.json", "etc/hosts"):
        place = tmp_path / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(name.encode() * 100)
        digest = f"sha256:{hashlib.sha256(place.read_bytes()).hexdigest()}"
        lines.append({"path": f"/{name}", "size": 100 * len(name), "digest": digest, "component": "x", "reason": "y"})
    (tmp_path / "usr/bin/python3").symlink_to("python3.11")
    lines.append({"path": "/usr/bin/python3", "size": 0, "target": "python3.11", "component": "x", "reason": "y"})
    body = ",\n".join(map(json.dumps, lines))
    (tmp_path / "pih/bundle.json").write_text(f'{{\n  "schema": 1,\n  "files": [\n{body}\n]\n}}\n')
    return tmp_path


def refused(root, capfd, *words):
    with pytest.raises(SystemExit) as ended:
        launcher.check(str(root))
    said = capfd.readouterr().err
    assert ended.value.code == 8
    assert said.count("\n") == 2, said  # one failure, in words
    assert all(word in said for word in (*words, "to fix: load the image again")), said


def test_what_is_as_listed_passes_in_silence(root, capfd):
    launcher.check(str(root))
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("name", FILES)
def test_a_flipped_bit_is_named(root, capfd, name):
    rotten(root / name, at=7)
    refused(root, capfd, f"{root}/{name}: is sha256:", "bundle.json says sha256:", "one of the two is damaged")


def test_what_is_missing_or_leads_elsewhere_is_named(root, capfd):
    (root / "usr/bin/python3").unlink()
    refused(root, capfd, f"{root}/usr/bin/python3: cannot be read")
    (root / "usr/bin/python3").symlink_to("python3.12")
    refused(root, capfd, f"{root}/usr/bin/python3: is -> python3.12")


def test_a_list_that_cannot_be_read(root, capfd):
    (root / "pih/bundle.json").write_bytes(b"\xff")
    refused(root, capfd, f"{root}/pih/bundle.json: cannot be read")
    (root / "pih/bundle.json").write_text('{"path": "/usr/bin\n')
    refused(root, capfd, f"{root}/pih/bundle.json: cannot be read")


def test_what_the_worker_checks_itself_or_engines_bring_is_left_to_them(root):
    rotten(root / "pih/model/text.json", at=7)
    rotten(root / "etc/hosts", at=7)
    launcher.check(str(root))


@pytest.mark.parametrize("damage", ["dies", "lies", "is missing"])
def test_a_library_for_digests_that_is_damaged_has_not_the_last_word(root, capfd, monkeypatch, damage):
    """The file that is named is the one that is damaged, whatever the library says."""

    class Lying:
        def __init__(self, _):
            if damage == "dies":
                os.kill(os.getpid(), signal.SIGKILL)

        def hexdigest(self):
            return "0" * 64

    module = None if damage == "is missing" else type("module", (), {"openssl_sha256": Lying})
    monkeypatch.setitem(launcher.sys.modules, "_hashlib", module)
    launcher.check(str(root))
    rotten(root / FILES[0], at=7)
    refused(root, capfd, FILES[0])
