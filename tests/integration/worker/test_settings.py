"""A plugin's settings, as its lock holds them: wrong ones end the start with their name."""

import subprocess

import pytest

from tests.integration.worker.toy_bundle import command, write_bundle
from tests.support.waiting import PATIENCE

NAMES = {"surface/openai": "body_bytes", "execution/continuous": "queue"}


@pytest.mark.parametrize("plugin", NAMES)
@pytest.mark.parametrize("value", ["x", 0, True, None])
def test_a_setting_of_a_wrong_kind_ends_the_start(tmp_path, plugin, value):
    folder = write_bundle(tmp_path, settings={plugin: {NAMES[plugin]: value}})
    asked = command(folder, "--listen", f"unix:{tmp_path}/s")
    done = subprocess.run(asked, check=False, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 9
    assert f"setting {NAMES[plugin]} must be a whole number from 1, not {value!r}" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_right_setting_holds(tmp_path, launch):
    worker = launch(write_bundle(tmp_path, settings={"surface/openai": {"body_bytes": 50}}))
    worker.wait_for("ready in")
    assert worker.post("/v1/completions", json={"model": "toy", "prompt": "a" * 50}).status_code == 413
