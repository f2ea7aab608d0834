"""`pih build --all-builders`: a line for each builder, whatever became of it, and an exit code that says so."""

import json
import shlex
import shutil
from pathlib import Path

import pytest

from pih.build.store import measure
from tests.support.program import PROFILE, ROOT, pih
from tests.support.rot import rotten

# Stands in for Bazel: it "builds" the folder IMAGE.
BAZEL = """#!/bin/sh
for option in "$@"; do
    case $option in --execution_log_json_file=*) : >"${option#*=}" ;; esac
done
mkdir -p .bazel/bin && rm -rf .bazel/bin/smollm2-cpu && cp -r IMAGE .bazel/bin/smollm2-cpu
"""

NIX = "#!/bin/sh\nexit 0\n"


@pytest.fixture(scope="module")
def image():
    return json.loads(pih("build", "--profile", PROFILE, "--json").stdout)


def surroundings(folder, **programs):
    """With these programs and no other builder's, and a store of its own that holds what the user's does."""
    folder.mkdir()
    for name in ("sh", "cp", "rm", "mkdir", "readlink", "dirname", "cat", "cksum"):
        (folder / name).symlink_to(shutil.which(name))
    for name, text in programs.items():
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    ours = Path(pih("store", "path").stdout.strip())
    store = folder / "store"
    store.mkdir()
    (store / "python").symlink_to(ours / "python")
    for name in ("sha256", "steps"):  # what is built, without the workspaces of a real Bazel
        (store / name).mkdir()
        for entry in (ours / name).iterdir():
            (store / name / entry.name).symlink_to(entry)
    return {"PATH": str(folder), "PIH_STORE": str(store)}


def compared(folder, *options, **programs):
    environment = surroundings(folder, **programs)
    return pih("build", "--all-builders", "--profile", PROFILE, *options, environment=environment, check=False)


def test_a_builder_that_fails_has_its_line(image, tmp_path):
    done = compared(tmp_path / "bin", bazel="#!/bin/sh\necho 'no room' >&2\nexit 36\n")
    embedded, bazel, nix = done.stdout.splitlines()
    assert embedded.startswith(f"embedded   {image['digest']}")
    assert bazel == "bazel      FAILED: bazel failed: no room"
    assert nix == "nix        SKIPPED: nix-build is not installed"
    assert done.returncode == 7
    assert "no room" in done.stderr


def test_the_same_as_json(image, tmp_path):
    done = compared(tmp_path / "bin", "--json", bazel="#!/bin/sh\necho 'no room' >&2\nexit 36\n")
    embedded, bazel, nix = json.loads(done.stdout)
    assert (embedded["digest"], embedded["failed"], embedded["skipped"]) == (image["digest"], "", "")
    assert "no room" in bazel["failed"]
    assert nix["skipped"] == "nix-build is not installed"
    assert done.returncode == 7


@pytest.mark.parametrize(
    ("script", "told"),
    [
        ("exit 0", "bazel ended well and left no log of what it ran"),
        ("printf '\\377' >&2; exit 1", "bazel failed: \ufffd"),
        ("echo one; echo 'ERROR: two' >&2; exit 1", "bazel failed: ERROR: two"),
    ],
    ids=["leaves nothing", "says what is no text", "says an error among other things"],
)
def test_a_builder_that_is_none_has_its_line_too(image, tmp_path, script, told):
    done = compared(tmp_path / "bin", bazel=f"#!/bin/sh\n{script}\n", **{"nix-instantiate": NIX, "nix-build": NIX})
    assert done.returncode == 7
    assert done.stdout.splitlines()[1] == f"bazel      FAILED: {told}"
    assert "FAILED: nix-instantiate ended well and did not say" in done.stdout.splitlines()[2]
    assert "Traceback" not in done.stderr


def test_one_builder_alone_compares_nothing(image, tmp_path):
    done = compared(tmp_path / "bin")
    assert done.returncode == 7
    assert done.stdout.splitlines()[1:] == [
        "bazel      SKIPPED: bazel is not installed",
        "nix        SKIPPED: nix-build is not installed",
    ]
    assert "nothing was compared" in done.stderr


@pytest.mark.parametrize("option", ["--all-builders", "--check"])
def test_what_compares_takes_no_builder(option):
    done = pih("build", option, "--builder", "embedded", "--profile", PROFILE, check=False)
    assert done.returncode == 2
    assert f"{option} does not go together with --builder\n" in done.stderr


def test_builders_that_agree(image, tmp_path):
    done = compared(tmp_path / "bin", bazel=BAZEL.replace("IMAGE", image["layout"]))
    assert done.returncode == 0, done.stderr
    assert [line.split()[1] for line in done.stdout.splitlines()[:2]] == [image["digest"]] * 2


def test_what_bazel_makes_lies_in_the_store_and_its_server_ends_by_itself(image, tmp_path):
    said = tmp_path / "said"
    script = BAZEL.replace("IMAGE", image["layout"]) + f'printf "%s\\n" "$@" >{said}\n'
    assert compared(tmp_path / "bin", bazel=script).returncode == 0
    base, idle, command, *_ = said.read_text().splitlines()
    (workspace,) = (path.name for path in (tmp_path / "bin/store/bazel/workspaces").iterdir() if path.is_dir())
    assert base == f"--output_base={tmp_path}/bin/store/bazel/outputs/{workspace}"
    assert (idle, command) == ("--max_idle_secs=900", "build")


def test_a_builder_that_gives_no_image_has_failed(image, tmp_path):
    (tmp_path / "other").mkdir()
    done = compared(tmp_path / "bin", bazel=BAZEL.replace("IMAGE", str(tmp_path / "other")))
    assert "FAILED: " in done.stdout.splitlines()[1]
    assert done.returncode == 8


def test_a_builder_that_gives_other_bytes_is_named_with_the_first_of_them(image, tmp_path):
    other = tmp_path / "other"
    shutil.copytree(image["layout"], other)
    (other / "oci-layout").chmod(0o644)
    (other / "oci-layout").write_text((other / "oci-layout").read_text() + "\n")
    done = compared(tmp_path / "bin", bazel=BAZEL.replace("IMAGE", str(other)))
    assert done.returncode == 7
    assert done.stdout.splitlines()[1].endswith("DIFFERS")
    assert "oci-layout: bazel gives other bytes" in done.stderr
    first, told = done.stderr.partition("to fix: ")[2].split(" and ", 1)
    second, told = told.split(" tell ", 1)
    verified = [pih(*shlex.split(command)[1:], check=False).returncode for command in (first, second)]
    assert verified == [0, 8]  # it is the image of the second that somebody changed
    assert f"pih build --check --profile {PROFILE} names the step that is not pure" in told


def test_an_image_that_is_damaged_in_the_store_is_dropped_and_made_again(image, tmp_path):
    as_before = BAZEL.replace("IMAGE", image["layout"]).replace("cp -r", "cp -rp")
    environment = surroundings(tmp_path / "bin", bazel=as_before)
    command = ("build", "--all-builders", "--profile", PROFILE, "--json")
    _, bazel, _ = json.loads(pih(*command, environment=environment).stdout)
    rotten(Path(bazel["layout"], "index.json"), at=200)
    done = pih(*command, environment=environment, check=False)
    assert done.returncode == 8
    assert "run this again: the image was damaged in the store" in done.stderr
    assert pih(*command, environment=environment).returncode == 0


def test_a_damaged_file_that_bazel_finds_is_removed_and_said(image, tmp_path):
    environment = surroundings(tmp_path / "bin", bazel="#!/bin/sh\nexit 1\n")
    artifact = json.loads((ROOT / PROFILE).with_suffix(".lock.json").read_text())["artifacts"][0]
    held = Path(environment["PIH_STORE"], "sha256", artifact["sha256"])
    content = held.read_bytes()
    held.unlink()
    held.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    command = ("build", "--builder", "bazel", "--offline", "--profile", PROFILE)
    done = pih(*command, environment=environment, check=False)
    assert done.returncode == 6
    assert "damaged after it entered the store" in done.stderr
    assert (
        f"run this again where it can be fetched, or bring the file first: pih fetch --profile {PROFILE}\n"
        in done.stderr
    )
    assert not held.exists()
    environment["PIH_MIRROR"] = f"{pih('store', 'path').stdout.strip()}/sha256"
    done = pih(*command, environment=environment, check=False)
    assert done.returncode == 7
    assert held.read_bytes() == content


def test_fetching_finds_what_was_damaged_and_tells_options_for_a_shell(image, tmp_path):
    environment = surroundings(tmp_path / "b in")
    environment["PIH_MIRROR"] = f"{pih('store', 'path').stdout.strip()}/sha256"
    lock = json.loads((ROOT / PROFILE).with_suffix(".lock.json").read_text())
    damaged = [lock["artifacts"][0], lock["build"]["seed"]]
    for item in damaged:
        held = Path(environment["PIH_STORE"], "sha256", item["sha256"])
        held.unlink()
        held.write_bytes(bytes(item["size"]))
    done = pih("fetch", "--builder", "bazel", "--offline", "--profile", PROFILE, environment=environment)
    assert "1 of them fetched now" in done.stdout
    for item in damaged:
        assert measure(Path(environment["PIH_STORE"], "sha256", item["sha256"])) == (item["sha256"], item["size"])
    words = shlex.split(done.stdout.partition("bazel takes them with")[2])
    assert words[0] == f"--repository_cache={environment['PIH_STORE']}/bazel/repository-cache"
