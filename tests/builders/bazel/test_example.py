"""A plugin from outside, in a profile of its own folder, goes the same way."""

import json
import os
from pathlib import Path

from tests.builders.bazel import world
from tests.support.checkout import pih_of

EXAMPLE = "examples/npu/npu.toml"


def test_the_example_accelerators_image_is_the_embedded_builders(bazel4, tree, fetched, store_apart, tmp_path):
    pih_of(tree, "lock", "--profile", EXAMPLE)
    path = f"{bazel4.installed(tmp_path / 'bin')}:{os.environ['PATH']}"
    images = {}
    with world.servers_end(bazel4, store_apart):
        for builder, store in (("embedded", fetched), ("bazel", store_apart)):
            own = {"PATH": path, "PIH_STORE": str(store)}
            done = pih_of(tree, "build", "--builder", builder, "--profile", EXAMPLE, "--json", **own)
            answer = json.loads(done.stdout)
            images[builder] = world.files(Path(answer["layout"]))
    (tree / "examples/npu/npu.lock.json").unlink()
    assert "base" in answer["steps_run"]
    assert images["bazel"] == images["embedded"]
