"""Several ranks are not run yet: said first."""

import pytest

from tests.support.program import pih


@pytest.mark.parametrize("command", [["run", "--prompt", "x"], ["serve"]])
def test_several_ranks_are_refused_before_anything_is_fetched_or_built(command, tmp_path):
    done = pih(*command, "--profile", "profiles/qwen3-4090d-x2.toml", environment={"PIH_STORE": tmp_path}, check=False)
    assert (done.returncode, done.stdout) == (9, "")
    told = done.stderr.strip().splitlines()[-2:]
    assert told[0].endswith("device.count = 2: 2 ranks, one for each device: running several is not there yet")
    assert told[1].startswith("  to fix: set device.count = 1; to see what several devices take: pih build")
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and path.stat().st_size > 1_000_000]
