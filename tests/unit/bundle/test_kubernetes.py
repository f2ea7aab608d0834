"""The example for Kubernetes gives the worker what its lock asks for; without that it would never be ready."""

import re
import textwrap
from pathlib import PurePosixPath

import yaml

from pih import lock
from pih.bundle import permissions, run
from tests.support.program import ROOT

PAGE = ROOT / "docs/howto/run-on-a-gpu.md"


def test_the_example_gives_all_that_the_lock_asks_for():
    (block,) = re.findall(r"^    spec:\n(?:    .*\n)+", PAGE.read_text(), re.MULTILINE)
    pod = yaml.safe_load(textwrap.dedent(block))["spec"]
    (container,) = pod["containers"]
    name = re.search(r"/([\w-]+)@sha256:", container["image"])[1]
    held = lock.read(ROOT / f"profiles/{name}.lock.json")
    volumes = {volume["name"] for volume in pod["volumes"]}
    mounts = {mount["mountPath"]: mount for mount in container["volumeMounts"]}
    assert {mount["name"] for mount in mounts.values()} == volumes
    assert "/tmp" in mounts  # the root is read-only
    assert held.weights.delivery == "separate"
    assert mounts[str(PurePosixPath(run.WEIGHTS_FILE).parent)]["readOnly"] is True
    asked = permissions.asked_of(plugin.permissions for plugin in held.plugins)
    assert container["resources"]["limits"] == dict.fromkeys(asked.families, held.target.device.count)
    for part in (*container["ports"], container["readinessProbe"]["httpGet"], container["livenessProbe"]["httpGet"]):
        assert held.service.port in (part.get("containerPort"), part.get("port"))


def test_a_command_uses_a_file_after_the_one_that_makes_it():
    text = PAGE.read_text()
    assert "weights pack" in text
    assert text.index("--output weights.safetensors") < text.index("--weights weights.safetensors")
