"""Bundles built by Nix, in its sandbox: the same image as the embedded builder's, from the same lock."""

import json
import re
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from pih import lock as locks
from pih.build.compare import first_difference
from tests.builders.nix import world as worlds
from tests.builders.nix.world import LOCK, edited
from tests.support.locks import sealed_text
from tests.support.program import PROFILE, ROOT
from tests.support.waiting import PATIENCE

SHIPPED = locks.read(ROOT / LOCK)
WEIGHTS = ["weights", "digests", "image", "bundle"]  # what is built after other weights
NAMES = sorted(path.name.removesuffix(".lock.json") for path in (ROOT / "profiles").glob("*.lock.json"))


def digest(layout):
    return json.loads((layout / "index.json").read_text())["manifests"][0]["digest"]


def test_the_image_is_the_embedded_builders(image, embedded):
    assert digest(image) == embedded["digest"]
    assert first_difference(image, Path(embedded["layout"])) is None


def test_nothing_is_built_twice(world, image):
    assert world.build(".#smollm2-cpu")[1] == ()


def test_without_flakes_it_is_the_same(world, image):
    for arguments in (["--attr", "smollm2-cpu"], ["--arg", "lock", f"./{LOCK}"]):
        link = Path(world.run("nix-build", "--no-out-link", *arguments).stdout.strip())
        assert link.resolve() == image


def test_the_flake_shows_every_lock(world):
    shown = json.loads(world.run("nix", "flake", "show", "--json").stdout)
    system = "x86_64-linux"
    assert sorted(shown["packages"][system]) == sorted([*NAMES, *(f"{name}-artifacts" for name in NAMES)])
    assert sorted(shown["apps"][system]) == sorted([*NAMES, *(f"{name}-load" for name in NAMES)])
    assert sorted(shown["checks"][system]) == sorted(f"{name}-{check}" for name in NAMES for check in ("seed", "lock"))
    assert shown["templates"]["default"]["type"] == "template"


def test_the_flakes_checks_pass(world, image):
    world.run("nix", "flake", "check")


def test_a_lock_that_names_another_plan_fails_its_check(world, image):
    path = world.tree / LOCK
    before = path.read_text()
    path.write_text(sealed_text(before.replace(SHIPPED.plan.sha256, "0" * 64)))
    try:
        done, _ = world.build(".#checks.x86_64-linux.smollm2-cpu-lock", check=False)
    finally:
        path.write_text(before)
    assert done.returncode != 0
    assert f"the lock was made with {'0' * 64}" in done.stderr


def test_a_seed_that_is_not_its_packages_fails_before_anything_else_runs(world, image, tmp_path):
    other = tmp_path / "busybox"
    other.write_bytes(b"#!/bin/sh\n")
    made = tmp_path / "pih-seed.tar"
    subprocess.run(["tar", "-C", tmp_path, "-cf", made, "busybox"], check=True)
    world.run("nix-store", "--add-fixed", "sha256", made)
    held = json.loads((world.tree / LOCK).read_text())["build"]["seed"]
    before = edited(
        world,
        LOCK,
        held["sha256"],
        subprocess.run(["sha256sum", made], capture_output=True, check=True).stdout[:64].decode(),
    )
    try:
        done, built = world.build(".#smollm2-cpu", check=False)
    finally:
        (world.tree / LOCK).write_text(before)
    assert done.returncode != 0
    assert built == ("seed",)


@pytest.mark.parametrize(
    "name", ["qwen3-cpu-synthetic", "qwen3-4090d"], ids=["weights of a gigabyte", "code for a GPU"]
)
def test_other_bundles_give_the_same_digest(world, name):
    digests = set()
    for builder in ("embedded", "nix"):
        done = world.pih("build", "--profile", f"profiles/{name}.toml", "--builder", builder, "--json")
        digests.add(json.loads(done.stdout)["digest"])
    assert len(digests) == 1


def test_pih_builds_with_nix(world, image):
    result = worlds.ours(world)
    assert result.output == image
    assert result.ran == ()


@pytest.mark.parametrize(
    ("name", "old", "new", "expected"),
    [
        (f"kernels/cpu/{SHIPPED.bindings[0].source}", "\n", "\n// changed\n", ["kernels", "image", "bundle"]),
        ("plugins/model/llama/pih_model_llama/__init__.py", "\n", "\n\n", ["plan", *WEIGHTS]),
        ("resolver/pih_steps/weights.py", "\n", "\n\n", WEIGHTS),
        ("README.md", "\n", "\n\n", []),
    ],
)
def test_an_edit_rebuilds_what_it_must(world, image, name, old, new, expected):
    before = edited(world, name, old, new)
    try:
        _, built = world.build(".#smollm2-cpu")
    finally:
        (world.tree / name).write_text(before)
    assert list(built) == expected


def test_another_port_rebuilds_what_holds_the_lock(world, image):
    before = (world.tree / LOCK).read_text()
    profile = edited(world, PROFILE, "port = 8000", "port = 8001")
    try:
        world.pih("lock", "--profile", PROFILE)
        _, built = world.build(".#smollm2-cpu")
    finally:
        (world.tree / PROFILE).write_text(profile)
        (world.tree / LOCK).write_text(before)
    assert list(built) == ["app", "image", "bundle"]


def test_a_template_builds_with_a_file_beside_its_lock(world, image, tmp_path):
    own = tmp_path / "own"
    own.mkdir()
    address = f"git+file://{world.tree}"
    world.run("nix", "flake", "init", "--template", address, cwd=own)
    assert "/result" in (own / ".gitignore").read_text().splitlines()
    flake = (own / "flake.nix").read_text()
    (own / "flake.nix").write_text(flake.replace("flake:pih", address))
    profile = (ROOT / PROFILE).read_text().replace('name = "smollm2-cpu"', 'name = "own"')
    weights = next(line for line in profile.splitlines() if line.startswith("weights = "))
    (own / "generation.json").write_text('{"do_sample": true, "temperature": 0.5, "top_p": 0.9}\n')
    (own / "deployment.toml").write_text(profile.replace(weights, f'{weights}\ngeneration = "file:generation.json"', 1))
    world.pih("lock", "--profile", "deployment.toml", cwd=own)
    worlds.commit(world, cwd=own)
    _, built = world.build(".", cwd=own)
    assert sorted(built) == ["app", "bundle", "image", "model", "present"]
    layout = world.path(".", cwd=own)
    said = json.loads(world.pih("build", "--profile", "deployment.toml", "--json", cwd=own).stdout)
    assert digest(layout) == said["digest"]


def test_the_worker_starts_without_a_container(world, image, tmp_path):
    socket = tmp_path / "worker.sock"
    process = subprocess.Popen(
        ["nix", "run", ".#smollm2-cpu", "--", "--listen", f"unix:{socket}"],
        cwd=world.tree,
        env=world.environment,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        said = []
        for line in process.stderr:
            said.append(line)
            if "ready in" in line:
                break
        assert "ready in" in said[-1], said
    finally:
        process.terminate()
        process.wait(PATIENCE)
        process.stderr.close()
    assert any("bundle smollm2-cpu" in line for line in said)


def test_a_library_that_only_its_environment_names_is_found_after_the_images_own(world, image, tmp_path):
    (tmp_path / "libc.so.6").write_text("of the host, which must not win")
    world.run("nix", "run", ".#smollm2-cpu", "--", "--help")
    start = world.evaluate(".#apps.x86_64-linux.smollm2-cpu.program")
    environment = world.environment | {"LD_LIBRARY_PATH": str(tmp_path), "LD_DEBUG": "libs"}
    done = replace(world, environment=environment).run(start, "--help")
    found = re.findall(r"search path=(\S*pih-worker\S*)", done.stderr)
    assert any(path.endswith(f":{tmp_path}") for path in found), done.stderr
    assert not any(path.startswith(f"{tmp_path}") for path in found)


def test_the_load_app_pipes_the_image_into_the_engine(world, image, tmp_path):
    engine = tmp_path / "engine"
    engine.write_text(f'#!/bin/sh\n[ "$1" = load ] && cat >{tmp_path}/image.tar\n')
    engine.chmod(0o755)
    world.run("nix", "run", ".#smollm2-cpu-load", "--", engine)
    names = subprocess.run(["tar", "-tf", tmp_path / "image.tar"], capture_output=True, text=True, check=True).stdout
    assert "./manifest.json" in names.splitlines()


def test_the_development_shell_is_one(world):
    stub = ["--override-input", "nixpkgs", f"path:{ROOT}/tests/builders/nix/nixpkgs", "--no-write-lock-file"]
    named = world.evaluate("./tools/nix/dev#devShells.x86_64-linux.default.packages", *stub)
    assert "python311" in named
