"""A single flipped bit anywhere in a sealed bundle is refused, in words that name the place."""

import random
from pathlib import Path

import pytest

from pih.seal import verify
from pih_runtime.errors import LockError, SealError

FLIPS = 500


def files(layout):
    return sorted(path for path in layout.rglob("*") if path.is_file())


def refusal(layout, path, bit):
    """What the check says with this bit of the file flipped; the file is put back."""
    whole = path.read_bytes()
    data = bytearray(whole)
    data[bit // 8] ^= 1 << bit % 8
    path.chmod(0o644)
    path.write_bytes(data)
    try:
        verify.whole(layout)
    except (SealError, LockError) as refused:
        return str(refused)
    finally:
        path.write_bytes(whole)
    return ""


def test_every_file_of_a_layout_has_its_flips(sealed, record_property):
    """Half of the flips fall on files alike, half on bytes alike: small files and large ones have their share."""
    seed = random.randrange(1 << 32)
    record_property("seed", seed)
    choice = random.Random(seed)
    every = files(sealed)
    sizes = [path.stat().st_size for path in every]
    for number in range(FLIPS):
        path = choice.choices(every, sizes if number % 2 else None)[0]
        bit = choice.randrange(path.stat().st_size * 8)
        said = refusal(sealed, path, bit)
        assert said, f"bit {bit} of {path.name} is not noticed (seed {seed})"
        assert Path(said.split(": ")[0]).is_relative_to(sealed), said
        assert any(word in said for word in ("sha256:", ".json", "oci-layout", "blob", "/pih/", "layout")), said
    verify.whole(sealed)


@pytest.mark.parametrize("name", ["index.json", "manifest.json", "oci-layout"])
def test_no_byte_beside_the_blobs_is_free(sealed, name):
    path = sealed / name
    for at in range(path.stat().st_size):
        bit = at * 8 + random.randrange(8)
        assert refusal(sealed, path, bit), f"bit {bit} of {name} is not noticed"


def test_what_is_missing_or_too_much_is_named(sealed):
    for path in files(sealed):
        kept = path.read_bytes()
        path.unlink()
        with pytest.raises(SealError, match=path.name):
            verify.whole(sealed)
        path.write_bytes(kept + b"\0")
        with pytest.raises(SealError):
            verify.whole(sealed)
        path.write_bytes(kept)
    for name in ("README", "blobs/sha256/" + "0" * 64, "blobs/sha512"):
        (sealed / name).write_bytes(b"x")
        with pytest.raises(SealError, match=f"{name} is no part of the bundle"):
            verify.whole(sealed)
        (sealed / name).unlink()
    verify.whole(sealed)
