"""What building needs, carried to a host without a network: the same digest there, and `./pih` itself from nothing."""

import json
import os
import shutil
import subprocess

import pytest

from tests.support.program import PROFILE, ROOT, pih

EXAMPLE = ROOT / "examples" / "npu"
SCRIPT = """
set -eu
[ "$(ls /sys/class/net)" = lo ] || [ "$(tail -n +3 /proc/net/dev | cut -d: -f1 | tr -d ' ')" = lo ]
cd "$1"
export PIH_STORE="$2/store" HOME="$2/home" XDG_CONFIG_HOME="$2/home" PIP_NO_INDEX=1 PIP_FIND_LINKS="$3/wheels"
unset PIH_MIRROR
./pih mirror import "$3" --json >"$2/imported"
shift 3
for profile; do
    ./pih build --offline --profile "$profile" --json
done
"""


def test_built_again_without_a_network(tmp_path):
    """A profile of the source tree, and one with a plugin from outside; in a clone that has no .venv and no store."""
    if (
        not shutil.which("bwrap")
        or subprocess.run(
            ["bwrap", "--unshare-net", "--dev-bind", "/", "/", "true"], capture_output=True, check=False
        ).returncode
    ):
        pytest.skip("bwrap does not work here: no namespace without interfaces")
    outside = tmp_path / "outside"
    for part in ("plugin", "transport"):
        shutil.copytree(EXAMPLE / part, outside / part, ignore=shutil.ignore_patterns("__pycache__"))
    text = (EXAMPLE / "npu.toml").read_text().replace("file:../../models", f"file:{ROOT}/models")
    (outside / "npu.toml").write_text(text)
    pih("lock", "--profile", outside / "npu.toml")
    profiles = [PROFILE, str(outside / "npu.toml")]
    wanted = [json.loads(pih("build", "--profile", profile, "--json").stdout)["digest"] for profile in profiles]

    told = pih("mirror", "export", "--profile", profiles[0], "--profile", profiles[1], "-o", tmp_path / "m", "--json")
    left_out = json.loads(told.stdout)["left_out"]
    assert any("backend/npu" in words for words in left_out)
    clone = tmp_path / "clone"
    skipped = shutil.ignore_patterns(".git", ".venv*", "__pycache__", ".*_cache", "bazel-*")
    shutil.copytree(ROOT, clone, ignore=skipped, symlinks=True)
    (tmp_path / "home").mkdir()
    command = ["bwrap", "--unshare-net", "--die-with-parent", "--dev-bind", "/", "/", "sh", "-c", SCRIPT, "sh"]
    run = subprocess.run(
        [*command, clone, tmp_path, tmp_path / "m", *profiles],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
    )
    assert run.returncode == 0, run.stderr
    decoder, text, found = json.JSONDecoder(), run.stdout.strip(), []
    while text:
        value, end = decoder.raw_decode(text)
        found.append(value)
        text = text[end:].strip()
    assert [value["digest"] for value in found] == wanted
    assert all("image" in value["steps_run"] for value in found), "nothing was built there"


def test_usage(tmp_path):
    for arguments, code, words in (
        (["export", "-o", tmp_path / "m"], 2, "--profile or a --lock"),
        (["export", "--profile", PROFILE, "--python", "2", "-o", tmp_path / "m"], 2, "no version of Python"),
        (["import", tmp_path], 6, "mirror.json"),
    ):
        run = pih("mirror", *arguments, check=False)
        assert (run.returncode, words in run.stderr) == (code, True), run.stderr


def test_a_lock_alone_in_one_file(tmp_path):
    lock = (ROOT / PROFILE).with_suffix(".lock.json")
    output = tmp_path / "mirror.tar"
    pih("mirror", "export", "--lock", lock, "--offline", "-o", output)
    own = {"PIH_STORE": str(tmp_path / "store")}
    told = json.loads(pih("mirror", "import", output, "--json", environment=own).stdout)
    wanted = {artifact["sha256"] for artifact in json.loads(lock.read_bytes())["artifacts"]}
    assert set(told["added"]) == wanted
    assert told["locks"][0]["profile"] == "smollm2-cpu"
    assert {path.name for path in (tmp_path / "store/sha256").iterdir()} == wanted
    assert any("requirements/build.txt" in words for words in told["left_out"])
