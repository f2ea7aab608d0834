"""Which generations stay, and that `rollback` goes to the one that ran before, not to one that was gone back from."""

import json
import shutil

import pytest

from tests.support.carried import carried, packed, sh


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("made")
    files = {text: carried(folder, text) for text in ("one", "two", "three", "four")}
    return files | {"other": carried(folder, "other", name="other")}


def gone_back(made, prefix, second="two", shell=("sh",)):
    """Generation 1 is the current one, and 2 was gone back from."""
    sh(made["one"], "install", "--prefix", prefix, shell=shell)
    sh(made[second], "upgrade", "--prefix", prefix, "--other-deployment", "--keep", "2", shell=shell)
    sh(prefix / "pih", "rollback", shell=shell)


def numbers(prefix):
    """Of the generations, and of the current one."""
    states = json.loads(sh(prefix / "pih", "status", "--json").stdout)["generations"]
    (current,) = (state["generation"] for state in states if state["current"])
    return [state["generation"] for state in states], current


def says(prefix):
    return sh(prefix / "pih", "start", "--no-sandbox").stdout.strip()


@pytest.mark.parametrize("second", ["two", "other"])
def test_what_ran_stays_and_is_what_rollback_goes_to(made, tmp_path, shell, second):
    prefix = tmp_path / "pih"
    gone_back(made, prefix, second, shell)
    sh(made["three"], "upgrade", "--prefix", prefix, "--keep", "2", shell=shell)
    assert numbers(prefix) == ([1, 3], 3)
    sh(prefix / "pih", "rollback", shell=shell)
    assert says(prefix) == "worker of one"


def test_rollback_passes_over_what_was_gone_back_from(made, tmp_path):
    prefix = tmp_path / "pih"
    gone_back(made, prefix)
    sh(made["other"], "upgrade", "--prefix", prefix, "--other-deployment")
    sh(made["three"], "upgrade", "--prefix", prefix, "--other-deployment", "--keep", "9")
    assert numbers(prefix) == ([1, 2, 3, 4], 4)
    for text in ("other", "one"):
        sh(prefix / "pih", "rollback")
        assert says(prefix) == f"worker of {text}"
    run = sh(prefix / "pih", "rollback", check=False)
    assert (run.returncode, "none is left that was current before generation 1" in run.stderr) == (2, True), run.stderr


def test_no_rollback_by_itself_where_what_ran_before_is_gone(made, tmp_path):
    """The next older number is 2, which was gone back from."""
    prefix = tmp_path / "pih"
    gone_back(made, prefix)
    sh(made["three"], "upgrade", "--prefix", prefix)
    shutil.rmtree(prefix / "generations/1")
    run = sh(prefix / "pih", "rollback", check=False)
    assert (run.returncode, "rollback N" in run.stderr) == (2, True), run.stderr
    assert says(prefix) == "worker of three"


def test_the_newest_others_stay(made, tmp_path):
    prefix = tmp_path / "pih"
    gone_back(made, prefix)
    sh(made["three"], "upgrade", "--prefix", prefix, "--keep", "3")
    sh(prefix / "pih", "rollback")
    sh(made["four"], "upgrade", "--prefix", prefix, "--keep", "3")
    assert numbers(prefix) == ([1, 3, 4], 4)
    sh(made["four"], "upgrade", "--prefix", prefix, "--keep", "2")
    assert numbers(prefix) == ([1, 4], 4)
    sh(made["four"], "upgrade", "--prefix", prefix, "--keep", "1")
    assert numbers(prefix) == ([4], 4)


def test_what_takes_the_place_of_a_damaged_one_has_its_way_back(made, tmp_path):
    prefix = tmp_path / "pih"
    gone_back(made, prefix)
    sh(made["three"], "upgrade", "--prefix", prefix)
    (prefix / "current/root/pih/lock.json").write_text("{}")
    sh(made["three"], "upgrade", "--prefix", prefix, "--keep", "2")
    assert numbers(prefix) == ([1, 4], 4)
    sh(prefix / "pih", "rollback")
    assert says(prefix) == "worker of one"


def test_what_is_there_is_not_unpacked_again(made, tmp_path, shell):
    prefix = tmp_path / "pih"
    gone_back(made, prefix, shell=shell)
    run = sh(made["two"], "upgrade", "--prefix", prefix, "--keep", "2", shell=shell)
    assert "nothing is unpacked" in run.stderr
    assert numbers(prefix) == ([1, 2], 2)
    assert says(prefix) == "worker of two"
    sh(prefix / "pih", "status", "--check", shell=shell)
    sh(prefix / "pih", "rollback", shell=shell)
    assert says(prefix) == "worker of one"


def test_rollback_goes_to_what_ran_before_an_older_one_came_back(made, tmp_path):
    prefix = tmp_path / "pih"
    gone_back(made, prefix, "other")
    sh(made["three"], "upgrade", "--prefix", prefix)
    run = sh(made["other"], "upgrade", "--prefix", prefix, check=False)
    assert (run.returncode, "is of tiny, this file is other" in run.stderr) == (2, True), run.stderr
    sh(made["other"], "upgrade", "--prefix", prefix, "--other-deployment", "--keep", "2")
    assert numbers(prefix) == ([2, 3], 2)
    sh(prefix / "pih", "rollback")
    assert says(prefix) == "worker of three"


def test_what_is_there_and_damaged_is_installed_anew(made, tmp_path):
    prefix = tmp_path / "pih"
    gone_back(made, prefix)
    (prefix / "generations/2/root/pih/lock.json").write_text("{}")
    assert "is installed anew" in sh(made["two"], "upgrade", "--prefix", prefix).stderr
    assert numbers(prefix) == ([1, 3], 3)
    sh(prefix / "pih", "rollback")
    assert says(prefix) == "worker of one"


def test_a_damaged_file_brings_nothing_back(made, tmp_path):
    prefix = tmp_path / "pih"
    gone_back(made, prefix)
    data = bytearray(made["two"].read_bytes())
    data[-2000] ^= 1
    (tmp_path / "two.pih").write_bytes(data)
    assert sh(tmp_path / "two.pih", "upgrade", "--prefix", prefix, check=False).returncode == 8
    assert numbers(prefix) == ([1, 2], 1)


def test_the_same_image_with_other_weights_is_another_generation(tmp_path):
    """They lie beside the image, in a file of their own or in the carried one."""
    given = [tmp_path / name for name in ("a.safetensors", "b.safetensors")]
    for path in given:
        packed(path, path.name[:1].encode() * 6000)
    apart = {"delivery": "separate", "weights": b""}
    file = carried(tmp_path / "without", "apart", **apart)
    prefix = tmp_path / "pih"
    sh(file, "install", "--prefix", prefix, "--weights", given[0])
    run = sh(file, "install", "--prefix", prefix, "--weights", given[1], check=False)
    assert (run.returncode, "has tiny already" in run.stderr) == (2, True), run.stderr
    sh(file, "upgrade", "--prefix", prefix, "--weights", given[1])
    assert numbers(prefix) == ([1, 2], 2)
    sh(carried(tmp_path / "with", "apart", apart=given[0], **apart), "upgrade", "--prefix", prefix)
    assert numbers(prefix) == ([1, 2], 1)
    assert "nothing to do" in sh(file, "install", "--prefix", prefix, "--weights", given[0]).stderr
