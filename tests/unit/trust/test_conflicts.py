"""Trust that fails: NAME.toml says what a publisher made, what became of it and what the user believes; NAME.txt, the
words that the user then reads.

sign: 'plugins', 'catalog' or nothing. change: made after signing. key: what the keyring says of the publisher's key.
With PIH_WRITE_WORDS=1 the words are written anew, to be read in the diff.
"""

import os
import tomllib
from pathlib import Path

import pytest

from pih import pins
from pih.resolve import locking
from pih.trust import keyring, publish
from pih_runtime.errors import PihError
from tests.unit.trust import made

CASES = sorted((Path(__file__).parent / "conflicts").glob("*.toml"))
PINS = pins.load(made.ROOT)


def never(what):
    raise AssertionError(f"asked for {what}")


def _publish(case, folder, key):
    for release in case["release"]:
        about = {name: release[name] for name in ("version", "pih", "abi") if name in release}
        made.plugin(folder / release["folder"], **about)
        with (folder / release["folder"] / "plugin.toml").open("a") as manifest:
            manifest.write(release.get("more", ""))
        if case.get("sign") == "plugins":
            publish.sign_plugin(folder / release["folder"], key)
    if case.get("sign") == "catalog":
        publish.sign_catalog(folder / "shelf", "vendor", key)
        made.withdraw(folder / "shelf", key, case.get("yank", ""))
    for change in case.get("change", ()):
        path = folder / change["file"]
        assert change["old"] in path.read_text()
        path.write_text(path.read_text().replace(change["old"], change["new"], 1))


def _lock(folder, entries, ring):
    known = made.catalog_of(folder, entries, ring)
    locking.lock(made.intent(folder, entries), known, PINS, None, fetch=never, pin=never)


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_the_user_reads_why_and_what_to_do(path, tmp_path):
    case = tomllib.loads(path.read_text())
    key = made.key(tmp_path)
    _publish(case, tmp_path, key)
    state = case.get("key", "trusted")
    ring = keyring.Keyring() if state == "unknown" else made.believing(key, state=state, note=case.get("note", ""))
    with pytest.raises(PihError) as caught:
        _lock(tmp_path, case["profile"], ring)
    assert caught.value.exit_code == case.get("exit", 4)
    words = str(caught.value).replace(str(tmp_path), "FOLDER") + "\n"
    expected = path.with_suffix(".txt")
    if os.environ.get("PIH_WRITE_WORDS"):
        expected.write_text(words)
    assert words == expected.read_text()
