"""What a build cannot choose, its user, the clock, the order in which folders are listed, does not reach the image.

Each is shown to reach the steps: a step that was changed to write it down gives other bytes there than here.
"""

import json
import os
import random
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support import preload
from tests.support.checkout import copied, edited, pih_of
from tests.support.program import PROFILE, pih

USER = "__import__('os').getuid()"
YEAR = "__import__('time').gmtime().tm_year"
LISTING = "[path.name for path in __import__('pathlib').Path(__file__).parent.iterdir()]"

# In front of every step's program: folders are listed in another order each time, where the file FLAG is.
SHUFFLED = """
import os, random

def _shuffled(listed):
    def function(*arguments):
        found = list(listed(*arguments))
        return _Entries(random.sample(found, len(found)))
    return function

class _Entries(list):
    def __enter__(self):
        return self
    def __exit__(self, *_error):
        pass
    def __next__(self):
        if not self:
            raise StopIteration
        return self.pop()
    def close(self):
        pass

if os.path.exists("FLAG"):
    os.listdir, os.scandir = _shuffled(os.listdir), _shuffled(os.scandir)
"""


@pytest.fixture(scope="module")
def digest():
    """Of the image that is built here."""
    return json.loads(pih("build", "--profile", PROFILE, "--json").stdout)["digest"]


@pytest.fixture
def tree(tmp_path):
    return copied(tmp_path / "tree")


def built(tree, store, prefix=(), **environment):
    """Digest of the image, and the steps that ran; the artifacts of the user's store are a mirror, nothing else is."""
    mirror = Path(pih("store", "path").stdout.strip()) / "sha256"
    surroundings = {"PIH_STORE": str(store), "PIH_MIRROR": str(mirror), **environment}
    command = ("build", "--profile", PROFILE, "--json", "--offline")
    answer = json.loads(pih_of(tree, *command, prefix=prefix, **surroundings).stdout)
    return answer["digest"], answer["steps_run"]


def holds(digest, tree, folder, leak, prefix=(), **environment):
    """A whole build there gives the digest; a step that writes LEAK down gives other bytes there than here."""
    store = folder / "store"
    found, steps = built(tree, store, prefix, **environment)
    assert "image" in steps
    assert found == digest
    shutil.copytree(store, folder / "here", copy_function=os.link)
    plant(tree, leak)
    there, steps = built(tree, store, prefix, **environment)
    assert "app" in steps
    assert there != digest
    assert built(tree, folder / "here")[0] != there


def plant(tree, leak):
    """The step `app` writes it down."""
    edited(tree / "resolver/pih_steps/app.py", "_launcher(spec), mode", f"_launcher(spec) + str({leak}).encode(), mode")


def test_another_user(digest, tree, tmp_path):
    """One whom the host does not know, without any capability."""
    prefix = ("unshare", "--user", "--map-user=4321", "--map-group=1234")
    if subprocess.run([*prefix, "true"], capture_output=True, check=False).returncode:
        pytest.skip("this host makes no user namespace")
    holds(digest, tree, tmp_path, USER, prefix, USER="nobody", LOGNAME="nobody")


def test_another_time(digest, tree, tmp_path):
    """Programs that are linked to a C library are told of another year; files are from before 1980 or not yet made."""
    configuration = tmp_path / "etc"
    configuration.mkdir()
    (configuration / "ld.so.preload").write_text(f"{preload.library(preload.LATER, tmp_path)}\n")
    lay_over = f"mount -t overlay overlay -o 'lowerdir={configuration}:/etc' /etc"
    own = [] if os.geteuid() == 0 else ["--map-root-user"]
    prefix = ("unshare", *own, "--mount", "sh", "-c", f'{lay_over} && exec "$@"', "sh")
    if subprocess.run([*prefix, "true"], capture_output=True, check=False).returncode:
        pytest.skip("this host lays no folder over /etc in a mount namespace")
    for path in [tree, *tree.rglob("*")]:
        at = random.choice([86400, 4000000000]) + random.randrange(10**7)
        os.utime(path, (at, at))
    holds(digest, tree, tmp_path, YEAR, prefix)


def test_another_order_of_folders(tree, tmp_path):
    """Everything that steps list comes shuffled; the image names its sources, so both builds have the same ones."""
    main, flag = "sys.dont_write_bytecode = True\n", tmp_path / "shuffled"
    edited(tree / "resolver/pih_steps/__main__.py", main, main + SHUFFLED.replace("FLAG", str(flag)))
    plain, _ = built(tree, tmp_path / "plain")
    flag.touch()
    holds(plain, tree, tmp_path, LISTING)  # two listings of the same folder, both shuffled


@pytest.mark.where_possible
def test_another_order_of_the_kernel(digest, tmp_path):
    """The source tree, the store and every scratch folder on a file system that shuffles what it lists."""
    if not shutil.which("disorderfs"):
        pytest.skip("disorderfs is not installed")
    below, mount = tmp_path / "below", tmp_path / "mount"
    below.mkdir()
    mount.mkdir()
    options = ["--quiet", "--shuffle-dirents=yes", "--reverse-dirents=no"]
    made = subprocess.run(["disorderfs", *options, below, mount], capture_output=True, text=True, check=False)
    if made.returncode:
        pytest.skip(f"no file system can be mounted: {made.stderr.strip()}")
    try:
        (mount / "scratch").mkdir()
        tree = copied(mount / "tree")
        found, steps = built(tree, mount / "store", TMPDIR=str(mount / "scratch"))
        assert "image" in steps
        assert found == digest
        assert len({tuple(path.name for path in (tree / "resolver/pih_steps").iterdir()) for _ in range(9)}) > 1
    finally:
        subprocess.run(["fusermount", "-u", "-z", mount], check=True)
