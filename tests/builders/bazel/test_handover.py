"""`pih fetch --builder bazel`: Bazel takes the locked files from the store as they lie there."""

import json
import shutil
import venv
from dataclasses import replace
from pathlib import Path

from pih.build.store import measure
from tests.builders.bazel import world
from tests.support.checkout import pih_of
from tests.support.program import PROFILE

PYTHON = "//profiles:smollm2-cpu.python"


def test_bazel_takes_links_from_the_cache_that_it_is_handed(bazel4, fetched, tree, tmp_path):
    done = pih_of(tree, "fetch", "--builder", "bazel", "--profile", PROFILE, "--json")
    options = json.loads(done.stdout)["options"]
    (tmp_path / "empty").mkdir()
    digest = next(item["sha256"] for item in json.loads(done.stdout)["artifacts"] if item["name"] == "libc6")
    with world.elsewhere(bazel4, tmp_path / "second") as second:
        alone = replace(second, environment={**bazel4.environment, "PIH_STORE": str(tmp_path / "empty")})
        alone.build(PYTHON, *options)
        base = Path(alone.run("info", "output_base").stdout.strip())
        (file,) = base.glob("external/*smollm2-cpu.libc6/file")
        assert measure(file)[0] == digest
        ours = fetched / "sha256" / digest
        assert ours.stat().st_mode & 0o222 == 0
        if file.stat().st_dev == ours.stat().st_dev:
            assert file.stat().st_nlink > 1, "a copy"


def test_what_to_run_is_said_where_tests_lack_their_environment(bazel4, tree, tmp_path):
    """`.venv` is enough for the tests of locks; the unit tests need `.venv-dev`."""
    kept = (tree / ".venv-dev").readlink()
    (tree / ".venv-dev").unlink()
    try:
        venv.create(tree / ".venv", symlinks=True)
        done = bazel4.run("test", "--nocache_test_results", "//tests:unit_lock", check=False)
    finally:
        shutil.rmtree(tree / ".venv")
        (tree / ".venv-dev").symlink_to(kept)
    assert done.returncode != 0
    said = done.stdout + done.stderr
    assert "unit tests need .venv-dev; to make it: tools/test lint" in said
    assert "Traceback" not in said
