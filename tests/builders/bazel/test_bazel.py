"""Bazel builds what the embedded builder builds, action by action, without a network."""

import json
import os
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from pih.build import outer
from tests.builders.bazel import world
from tests.builders.bazel.conftest import DEVICE, IMAGE, SYNTHETIC
from tests.support import podman
from tests.support.checkout import pih_of
from tests.support.program import PROFILE

STEPS = {"imports", "wheels", "base", "app", "plan", "weights", "digests", "model", "kernels", "smollm2-cpu"}


def test_one_action_a_step(first4):
    _, actions = first4
    assert world.steps(actions) == STEPS
    assert sorted(actions) == sorted({*actions}), "an action ran twice"
    assert not any(cached for _, _, cached in actions)


def test_bazel_4_gives_the_embedded_builders_image(bazel4, embedded):
    bazel4.build(IMAGE)
    assert world.files(bazel4.output("profiles/smollm2-cpu")) == world.files(embedded[PROFILE])


@pytest.mark.where_possible
def test_bazel_7_gives_the_embedded_builders_image(first7, embedded):
    bazel7, actions = first7
    assert world.steps(actions) == STEPS
    bazel7.build(IMAGE)
    assert world.files(bazel7.output("profiles/smollm2-cpu")) == world.files(embedded[PROFILE])


@pytest.mark.parametrize("version", [4, pytest.param(7, marks=pytest.mark.where_possible)])
def test_code_for_a_device_is_the_same(version, request, embedded):
    """NVRTC sees neither the sandbox's paths nor anything else of it."""
    bazel = request.getfixturevalue(f"bazel{version}")
    bazel.build("//profiles:qwen3-4090d")
    assert world.files(bazel.output("profiles/qwen3-4090d")) == world.files(embedded[DEVICE])


@pytest.mark.where_possible
@pytest.mark.parametrize("version", [8, 9])
def test_later_bazel_gives_the_embedded_builders_image(version, tmp_path):
    world.program(version, tmp_path)


def test_an_action_is_the_same_on_every_machine(bazel4):
    bazel4.build(IMAGE)
    profiles = bazel4.output("profiles")
    specs = [profiles / "smollm2-cpu.spec.json", *profiles.glob("smollm2-cpu.steps/*.spec.json")]
    assert len(specs) == len(STEPS)
    for path in specs:
        assert not [word for word in path.read_text().split('"') if word.startswith("/") and "/" in word[1:]], path


def test_nothing_to_do(bazel4):
    bazel4.build(IMAGE)
    _, actions = bazel4.build(IMAGE)
    assert actions == []


@pytest.mark.parametrize("version", [4, pytest.param(7, marks=pytest.mark.where_possible)])
def test_a_second_machine_takes_every_action_from_the_remote_cache(version, request, remote_cache, tmp_path, embedded):
    with world.elsewhere(request.getfixturevalue(f"bazel{version}"), tmp_path / "second") as second:
        _, actions = second.build(IMAGE, remote_cache)
        assert world.steps(actions) == STEPS
        assert all(cached for _, _, cached in actions), actions
        assert world.files(second.output("profiles/smollm2-cpu")) == world.files(embedded[PROFILE])


@pytest.mark.parametrize(
    ("file", "change", "expected"),
    [
        ("kernels/cpu/pack.h", lambda text: text + "// the same code\n", {"kernels", "smollm2-cpu"}),
        (
            "kernels/cpu/pack.h",
            lambda text: text + "PIH_EXPORT int pih_edited(void) { return 1; }\n",
            {"kernels", "smollm2-cpu"},
        ),
        (
            "profiles/smollm2-cpu.lock.json",
            lambda text: text.replace('"port": 8000', '"port": 8001'),
            {"app", "smollm2-cpu"},
        ),
        (
            "plugins/model/llama/pih_model_llama/__init__.py",
            lambda text: text + "# the same plan\n",
            {"plan", "smollm2-cpu"},
        ),
        ("docs/concepts.md", lambda text: text + "\n", set()),
    ],
    ids=["comment in a kernel", "kernel", "port", "model", "page"],
)
def test_a_change_runs_the_steps_that_see_it(bazel4, tree, file, change, expected):
    bazel4.build(IMAGE)
    undo = world.edited(tree, file, change)
    try:
        _, actions = bazel4.build(IMAGE)
    finally:
        undo()
    assert world.steps(actions) == expected


def test_the_archive_loads(bazel4, embedded, tmp_path):
    with podman.environment(tmp_path / "podman") as own:
        loaded = replace(bazel4, environment={**bazel4.environment, **own}).run("run", f"{IMAGE}.load")
        assert "localhost/pih/smollm2-cpu:0.1.0" in loaded.stdout
        show = ["podman", "image", "inspect", "--format", "{{.Id}}", "localhost/pih/smollm2-cpu:0.1.0"]
        found = subprocess.run(show, env={**os.environ, **own}, capture_output=True, text=True, check=True).stdout
    index = json.loads((embedded[PROFILE] / "index.json").read_text())
    manifest = embedded[PROFILE] / "blobs/sha256" / index["manifests"][0]["digest"].removeprefix("sha256:")
    assert f"sha256:{found.strip()}" == json.loads(manifest.read_text())["config"]["digest"]


@pytest.mark.parametrize(
    ("version", "tests"),
    [(4, ["//..."]), pytest.param(7, ["//profiles/...", "//tests:unit_lock"], marks=pytest.mark.where_possible)],
)
def test_every_target_of_the_project(version, tests, request):
    """All are built by each version. What a unit test finds does not depend on it: one folder's shows that they run."""
    bazel = request.getfixturevalue(f"bazel{version}")
    bazel.run("build", "//...")
    done = bazel.test(*tests)
    assert "//tests:unit_lock" in done.stdout
    assert "//profiles:smollm2-cpu.lock" in done.stdout


def test_a_lock_that_does_not_answer_its_profile_fails_its_test(bazel4, tree):
    undo = world.edited(tree, PROFILE, lambda text: text.replace("batch = 4", "batch = 5"))
    try:
        done = bazel4.test(f"{IMAGE}.lock", check=False)
    finally:
        undo()
    assert done.returncode != 0
    assert "pih lock --profile profiles/smollm2-cpu.toml" in done.stdout + done.stderr


@pytest.mark.parametrize("version", [4, pytest.param(7, marks=pytest.mark.where_possible)])
def test_an_artifact_that_is_not_there(version, request, tmp_path):
    bazel = request.getfixturevalue(f"bazel{version}")
    (tmp_path / "empty").mkdir()
    with world.elsewhere(bazel, tmp_path / "second") as second:
        environment = {**bazel.environment, "PIH_STORE": str(tmp_path / "empty")}
        done, actions = replace(second, environment=environment).build(IMAGE, check=False)
    assert done.returncode != 0
    assert "is not in PIH's store" in done.stderr
    assert "pih fetch --profile profiles/smollm2-cpu.toml" in done.stderr
    assert actions == []


@pytest.mark.parametrize("version", [4, pytest.param(7, marks=pytest.mark.where_possible)])
def test_a_store_that_is_not_an_absolute_path_is_refused(version, request):
    bazel = request.getfixturevalue(f"bazel{version}")
    for name, others in {"PIH_STORE": {}, "XDG_CACHE_HOME": {"PIH_STORE": ""}}.items():
        environment = {**bazel.environment, **others, name: "relative"}
        done = replace(bazel, environment=environment).run("build", "--nobuild", IMAGE, check=False)
        assert done.returncode != 0
        assert f"{name} is not an absolute path: relative.\n  to fix: set it to one" in done.stderr


def test_what_the_image_does_not_hold_names_the_option_that_brings_it(bazel4):
    said = {}
    for name in ("qwen3-0.6b_model.safetensors", "tokenizers"):
        done = bazel4.run("query", "--output=build", f"//external:pih_profiles.qwen3-cpu.{name}")
        said[name] = re.findall(r'(option|profile) = "(.*)"', done.stdout)
    assert ("option", " --weights") in said["qwen3-0.6b_model.safetensors"]
    assert ("option", " --weights") not in said["tokenizers"]
    assert ("profile", "profiles/qwen3-cpu.toml") in said["tokenizers"]


@pytest.mark.parametrize("version", [4, pytest.param(7, marks=pytest.mark.where_possible)])
def test_a_wrong_digest_fails_before_anything_is_built(version, request, tree):
    bazel = request.getfixturevalue(f"bazel{version}")
    right = next(
        item["sha256"] for item in json.loads((tree / PROFILE).with_suffix(".lock.json").read_text())["artifacts"]
    )
    undo = world.edited(tree, "profiles/smollm2-cpu.lock.json", lambda text: text.replace(right, "0" * 64))
    try:
        done, actions = bazel.build(IMAGE, check=False)
    finally:
        undo()
    assert done.returncode != 0
    assert "0" * 64 in done.stderr
    assert actions == []


def test_a_damaged_artifact_fails_before_anything_is_built(bazel4, fetched, tree, tmp_path):
    artifacts = json.loads((tree / PROFILE).with_suffix(".lock.json").read_text())["artifacts"]
    store = tmp_path / "a store #1? 100%/sha256"  # what a URL has other words for
    store.mkdir(parents=True)
    for path in (fetched / "sha256").iterdir():
        (store / path.name).symlink_to(path)
    damaged = store / artifacts[-1]["sha256"]
    content = damaged.read_bytes()
    damaged.unlink()
    damaged.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with world.elsewhere(bazel4, tmp_path / "second") as second:
        environment = {**bazel4.environment, "PIH_STORE": str(store.parent)}
        done, actions = replace(second, environment=environment).build(IMAGE, check=False)
    assert done.returncode != 0
    named = re.findall(r"\(sha256 (\w+)\) is damaged in PIH's store", done.stderr)
    assert {*named} == {artifacts[-1]["sha256"]}
    assert "pih fetch --profile profiles/smollm2-cpu.toml\n" in done.stderr
    assert actions == []


@pytest.mark.parametrize("version", [4, pytest.param(7, marks=pytest.mark.where_possible)])
def test_a_workspace_of_its_own_made_from_the_template(version, request, tree, store_apart, embedded, tmp_path):
    """What `pih build --builder bazel` does, whatever the user's own .bazelrc says of outputs and links."""
    bazel = request.getfixturevalue(f"bazel{version}")
    path = f"{bazel.installed(tmp_path / 'bin')}:{os.environ['PATH']}"
    (tmp_path / ".bazelrc").write_text("build -c opt --symlink_prefix=/ --experimental_convenience_symlinks=ignore\n")
    own = {"PATH": path, "HOME": str(tmp_path), "PIH_STORE": str(store_apart)}
    name = outer.name(Path(SYNTHETIC).stem, (tree / SYNTHETIC).with_suffix(".lock.json"), tree)
    with world.servers_end(bazel, store_apart):
        done = pih_of(tree, "build", "--offline", "--builder", "bazel", "--profile", SYNTHETIC, "--json", **own)
        assert (store_apart / "bazel/outputs" / name / "execroot").is_dir()
    answer = json.loads(done.stdout)
    assert "kernels" in answer["steps_run"]
    assert world.files(Path(answer["layout"])) == world.files(embedded[SYNTHETIC])


@pytest.mark.parametrize("version", [4, pytest.param(7, marks=pytest.mark.where_possible)])
def test_an_own_repository_builds_its_deployment_and_tests_its_lock(version, request, tree, tmp_path):
    own = shutil.copytree(tree / "tools/bazel/template", tmp_path / "deployments")
    (tmp_path / "pih").symlink_to(tree)
    profile = own / "chat.toml"
    profile.write_text((tree / PROFILE).read_text().replace("smollm2-cpu", "chat"))
    pih_of(tree, "lock", "--profile", profile)
    expected = json.loads(pih_of(tree, "build", "--offline", "--profile", profile, "--json").stdout)["layout"]
    with world.elsewhere(request.getfixturevalue(f"bazel{version}"), tmp_path / "second", tree=own) as bazel:
        bazel.test("//...")
        assert world.files(bazel.output("chat")) == world.files(Path(expected))
        profile.write_text(profile.read_text().replace("batch = 4", "batch = 5"))
        done = bazel.test("//:chat.lock", check=False)
    assert done.returncode != 0
    assert "pih lock --profile" in done.stdout + done.stderr
