"""Pins: finding, choosing and moving them."""

import json
from pathlib import Path

import attrs
import pytest

from pih import pins
from pih.build import purl
from pih.lock import Artifact, Seed
from pih.resolve.artifacts import BASE, TOOLS
from pih.resolve.graph import COMPILERS
from pih_runtime.errors import LockError, UsageError

ROOT = Path(__file__).parents[3]
SHIPPED = pins.load(ROOT)


def artifact(name, kind="wheel", version="1", licence="MIT"):
    return Artifact(name, version, kind, version * 64, 1, (), licence, ())


SEED = Seed("libc6", "bin/tool", "1" * 64, 1)
HELD = pins.Pins(
    1, SEED, (artifact("libc6", "deb"), artifact("zlib1g", "deb"), artifact("click"), artifact("model", "hf"))
)


def test_the_release_pins_all_that_its_graphs_name():
    assert all(SHIPPED.find("deb", name) for name in BASE)
    assert all(SHIPPED.find("wheel", name) for name in (*COMPILERS, *TOOLS))


def test_shipped_pins_are_well_formed():
    assert len({(pin.kind, pin.name) for pin in SHIPPED.artifacts}) == len(SHIPPED.artifacts)
    for pin in SHIPPED.artifacts:
        assert len(pin.sha256) == 64
        assert pin.size > 0
        assert pin.licence not in ("", "NOASSERTION")
        assert [purl.parse(text).version for text in pin.purls] == [pin.version]


def test_wheels_are_found_under_any_spelling():
    assert SHIPPED.find("wheel", "Typing_Extensions") == SHIPPED.find("wheel", "typing-extensions") is not None
    assert SHIPPED.find("deb", "typing-extensions") is None


@pytest.mark.parametrize(
    ("what", "names"),
    [
        (pins.ALL, ["libc6", "zlib1g", "click"]),
        ("base", ["libc6", "zlib1g"]),
        ("click", ["click"]),
        ("Click", ["click"]),
    ],
)
def test_what_an_upgrade_moves(what, names):
    assert [pin.name for pin in pins.chosen(HELD, what)] == names


def test_the_same_file_keeps_the_licence_that_was_known():
    old = artifact("uvicorn", licence="BSD-3-Clause")
    held = attrs.evolve(HELD, artifacts=(old,))
    moved, moves = pins.upgrade(held, [old], lambda *_: [attrs.evolve(old, licence="BSD License")])
    assert moved.artifacts == (old,)
    assert moves == ()


def test_an_upgrade_of_nothing_known_is_a_usage_error():
    with pytest.raises(UsageError) as caught:
        pins.chosen(HELD, "clik")
    assert str(caught.value) == (
        "no artifact is called 'clik'\n  to fix: did you mean click? give base or the name of an artifact in the lock"
    )


def test_an_upgrade_keeps_the_rest_and_tells_what_moved():
    asked = []

    def newest(kind, names):
        asked.append((kind, names))
        return [artifact(name, kind, "2" if name == "libc6" else "1") for name in names]

    moved, moves = pins.upgrade(HELD, pins.chosen(HELD, "base"), newest)
    assert asked == [("deb", ("libc6", "zlib1g"))]
    assert moves == (pins.Move("libc6", "1", "2"),)
    assert moved.find("deb", "libc6").version == "2"
    assert moved.find("wheel", "click") == HELD.find("wheel", "click")
    assert moved.seed == SEED


def test_a_licence_that_a_registry_does_not_say_stays():
    moved, _ = pins.upgrade(HELD, [artifact("libc6", "deb")], lambda *_: [artifact("libc6", "deb", "2", "NOASSERTION")])
    assert moved.find("deb", "libc6").licence == "MIT"


@pytest.mark.parametrize(
    ("text", "what"),
    [
        (None, "cannot read the pins: No such file or directory"),
        ("{", "not JSON: "),
        ('{"schema": 1}', "seed: missing"),
        (json.dumps({"schema": 9, "seed": attrs.asdict(SEED), "artifacts": []}), "pins schema 9 is not 1"),
        (
            json.dumps(
                {
                    "schema": 1,
                    "seed": attrs.asdict(SEED),
                    "artifacts": [attrs.asdict(artifact("a")) | {"size": "1", "purls": [], "reasons": []}],
                }
            ),
            'artifacts[0].size: "1" is not a whole number',
        ),
    ],
)
def test_bad_pins_are_refused(tmp_path, text, what):
    path = tmp_path / "plugins" / "pins.json"
    path.parent.mkdir()
    if text is not None:
        path.write_text(text)
    with pytest.raises(LockError) as caught:
        pins.load(tmp_path)
    assert str(caught.value).startswith(f"{path}: {what}")
    assert str(caught.value).endswith("to fix: restore plugins/pins.json from the release")
