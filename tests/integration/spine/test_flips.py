"""A bit that rots anywhere in what the worker imports or maps ends it with 8 and the file's name, before it answers."""

import json
import os
import random
import shutil
import subprocess
from pathlib import Path

import pytest

from pih.build.store import default_root, open_store
from pih.bundle import layout as layouts
from pih.bundle.unpack import unpack
from tests.support.rot import rotten
from tests.support.waiting import PATIENCE

# What runs before the first line of ours does: where a flipped bit stops it, nobody is left to say so.
BEFORE = (
    "/usr/bin/",
    "/usr/lib/x86_64-linux-gnu/ld-",
    "/usr/lib/x86_64-linux-gnu/libc.",
    "/usr/lib/python3.11/encodings/",
)
CERTAIN = ("/usr/lib/x86_64-linux-gnu/libcrypto.so.3", "/pih/lib/pih_runtime/worker.pyc", "/pih/model/text.json")


@pytest.fixture(scope="module")
def root(image):
    if shutil.which("bwrap") is None:
        pytest.skip("bwrap is not installed")
    return unpack(layouts.read(Path(image["layout"])), open_store(default_root(os.environ)))


def worker(root, over, path):
    """Start it with another file in place of one."""
    places = ["--ro-bind", root, "/", "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "--ro-bind", over, path]
    command = ["bwrap", "--unshare-all", "--die-with-parent", *map(str, places)]
    command += ["/usr/bin/pih-worker", "--listen", "unix:/tmp/worker.sock"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    return done.returncode, done.stderr


def test_a_flipped_bit_is_named(root, tmp_path):
    chance = random.Random(24)
    sizes = {
        file["path"]: file["size"]
        for file in json.loads((root / "pih/bundle.json").read_bytes())["files"]
        if file["size"] and file["path"].startswith(("/usr/", "/pih/")) and not file["path"].startswith("/pih/weights/")
    }
    assert {path for path in sizes if path.startswith(BEFORE)}
    late = sorted(path for path in sizes if not path.startswith(BEFORE))
    for path in [*CERTAIN, *CERTAIN, *chance.sample(late, 30)]:
        over = tmp_path / "over"
        shutil.copy2(root / path.lstrip("/"), over)
        at = chance.randrange(sizes[path])
        rotten(over, at=at)
        code, said = worker(root, over, path)
        assert code == 8, (path, at, said)
        assert f"{path}: " in said, (path, at, said)
        assert "Traceback" not in said


def test_a_flipped_bit_of_the_list_is_not_blamed_on_another_file_alone(root, tmp_path):
    data = (root / "pih/bundle.json").read_bytes()
    over = tmp_path / "over"
    shutil.copy2(root / "pih/bundle.json", over)
    rotten(over, at=data.index(b"sha256:", data.index(b"/pih/model/text.json")) + 20)
    code, said = worker(root, over, "/pih/bundle.json")
    assert code == 8
    assert "bundle.json says" in said
    assert "one of the two is damaged" in said
