"""`pih inspect` of the built image in every form that an operator has it in."""

import json
import resource
import subprocess

import pytest

from tests.support.program import PROFILE, pih


@pytest.fixture(scope="module")
def described(image):
    return json.loads(pih("inspect", image["layout"], "--json").stdout)


@pytest.fixture(scope="module")
def fresh(podman_environment, tmp_path_factory):
    """podman's variables, and a store in which nothing was read yet."""
    return {**podman_environment, "PIH_STORE": str(tmp_path_factory.mktemp("store"))}


@pytest.mark.parametrize("name", ["podman:{}", "podman:{id}", "containers-storage:{}"])
def test_an_image_in_podmans_store_is_the_one_that_was_built(image, described, loaded, podman, fresh, name):
    """The digest is the one that podman keeps: its layers are no longer the compressed ones, their content is."""
    reference = podman("image", "inspect", "--format", "{{index .RepoTags 0}}", loaded).strip()
    identity = podman("image", "inspect", "--format", "{{.Id}}", loaded).strip()
    name = name.format(reference, id=identity[:12])
    found = json.loads(pih("inspect", name, "--json", environment=fresh).stdout)
    assert found["identity"]["config"] == f"sha256:{identity}"
    assert found["identity"]["digest"] == image["digest"]
    differs = ("form", "reference")
    assert {key: value for key, value in found["identity"].items() if key not in differs} == {
        key: value for key, value in described["identity"].items() if key not in differs
    }
    del found["identity"]
    assert found == {key: value for key, value in described.items() if key != "identity"}


def test_the_layers_of_an_image_are_read_once(loaded, podman, fresh, tmp_path):
    environment = {**fresh, "PIH_STORE": str(tmp_path)}
    first = pih("inspect", f"podman:{loaded}", environment=environment)
    assert "fetched  podman:" in first.stderr
    assert "every layer was read" in first.stdout
    assert "this form of a bundle keeps no seal" in first.stdout
    assert sum(path.stat().st_size for path in tmp_path.rglob("*") if path.is_file()) < 1 << 20
    assert list((tmp_path / "tmp").iterdir()) == []
    again = pih("inspect", f"podman:{loaded}", environment=environment)
    assert again.stdout == first.stdout
    assert again.stderr == ""


def test_why_in_podmans_store(loaded, fresh):
    found = pih("why", "libstdc++.so.6", f"podman:{loaded}", environment=fresh).stdout
    assert "tokenizers.tokenizers needs libstdc++.so.6" in found


def test_an_image_that_podman_has_not(podman_environment, fresh):
    run = pih("inspect", "podman:nowhere/nothing:1", environment=fresh, check=False)
    assert run.returncode == 6
    assert "podman:nowhere/nothing:1" in run.stderr
    assert "Traceback" not in run.stderr


def test_an_installed_copy_behind_a_link(image, described, tmp_path):
    root = tmp_path / "generations" / "1"
    for layer in described["layers"][:-1]:
        root.mkdir(parents=True, exist_ok=True)
        blob = f"{image['layout']}/blobs/sha256/{layer['digest'][7:]}"
        subprocess.run(["tar", "-xzf", blob, "-C", root], check=True)
    (tmp_path / "current").symlink_to("generations/1")
    found = json.loads(pih("inspect", tmp_path / "current", "--json").stdout)
    assert found["files"] == described["files"]
    assert found["identity"]["lock"] == described["identity"]["lock"]


def test_the_text_says_what_the_json_says(image, described):
    shown = pih("inspect", image["layout"]).stdout
    identity = described["identity"]
    for fact in (identity["digest"], identity["config"], identity["content"], identity["lock"], identity["reference"]):
        assert fact in shown
    for plugin in described["plugins"]:
        assert f"  {plugin['id']} " in shown
        assert plugin["reason"] in shown
    for op in {binding["op"] for binding in described["bindings"]}:
        assert f"\n  {op} " in shown
    for row in described["components"]:
        assert f"\n{row['name']} " in shown
        assert row["licence"] in shown
    for layer in described["layers"]:
        assert layer["digest"] in shown
    assert "unsigned, without SBOM" in shown


def test_the_tree_fits_a_terminal(image, described):
    lines = pih("inspect", image["layout"], "--tree").stdout.splitlines()
    assert max(map(len, lines)) <= 80
    for layer in described["layers"]:
        assert any(f" {layer['name']} layer (" in line for line in lines)
    for row in described["components"]:
        assert any(f"─ {row['name']}" in line for line in lines)


def cpu(*arguments):
    """Seconds of the processor that a command takes: the least of three."""
    return min(once(*arguments) for _ in range(3))


def once(*arguments):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    pih(*arguments)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


@pytest.mark.parametrize("form", [[], ["--tree"], ["--files"], ["--json"]])
def test_inspect_takes_half_a_second_at_most(image, form):
    """Where `pih --version` takes 0.06 s of the processor: a slower one takes longer for both."""
    assert cpu("inspect", image["layout"], *form) < 8.5 * cpu("--version")


def test_nothing_to_look_into():
    run = pih("inspect", check=False)
    assert run.returncode == 2
    assert PROFILE in run.stderr
