"""`pih diff` of real bundles that differ in one thing, in every form, within its time."""

import json
import resource
import subprocess

import pytest
from markdown_it import MarkdownIt

from tests.support.program import ROOT, pih

FIRST_SENTENCES = {
    "isa": "Target x86-64-v3 → x86-64-v4-bf16-vnni: the same 16 kernels for 11 ops, compiled for it; -",
    "bf16": "Weights q4_1 and q8_0 → bf16, ",
    "separate": "Weights move out of the image (embed → separate): ",
    "base": "Base userland: libexpat1 2.5.0-1+deb12u5 → 2.5.0-1+deb12u6 (+",
    "small": "Settings: limits.context 64 → 32.",
}
COMPONENTS = {
    "isa": {"kernels/cpu", "pih"},
    "bf16": {"kernels/cpu", "model/llama", "pih", "weights"},
    "separate": {"weights", "pih"},
    "base": {"libexpat1", "pih"},
    "small": {"health/probe", "model/llama", "pih"},
}


@pytest.mark.parametrize("name", FIRST_SENTENCES)
def test_one_thing_reads_as_one_sentence(layout_of, name):
    old, new = layout_of("first"), layout_of(name)
    said = json.loads(pih("diff", old, new, "--json").stdout)
    assert said["sentences"][0].startswith(FIRST_SENTENCES[name])
    assert {row["name"] for row in said["image"]["components"]} == COMPONENTS[name]
    sizes = [json.loads(pih("inspect", side, "--json").stdout)["layers"] for side in (old, new)]
    for form, key in (("size", "size"), ("compressed", "compressed")):
        assert (said["image"][form]["old"], said["image"][form]["new"]) == tuple(
            sum(layer[key] for layer in layers) for layers in sizes
        )
    assert said["not_compared"] == []


def test_every_changed_file_is_in_the_list_and_no_other(layout_of):
    old, new = layout_of("first"), layout_of("base")
    said = json.loads(pih("diff", old, new, "--json").stdout)
    files = [json.loads(pih("inspect", side, "--json").stdout)["files"] for side in (old, new)]
    listed = [{(row["path"], row.get("digest") or row["target"]) for row in rows} for rows in files]
    assert {row["path"] for row in said["image"]["files"]} == {path for path, _ in listed[0] ^ listed[1]}


def test_markdown_of_a_real_pair(layout_of):
    old, new = layout_of("first"), layout_of("bf16")
    text = pih("diff", old, new, "--markdown").stdout
    said = json.loads(pih("diff", old, new, "--json").stdout)
    read = MarkdownIt("commonmark", {"html": True}).enable("table").parse(text)
    shown = ["".join(child.content for child in token.children) for token in read if token.type == "inline"]
    assert (read[0].type, shown[0]) == ("heading_open", said["headline"])
    assert shown[1 : 1 + len(said["sentences"])] == said["sentences"]
    names = [row["name"] for row in said["image"]["components"]]
    assert [cell for cell in shown if cell in COMPONENTS["bf16"]][: len(names)] == names
    assert [cell for cell in shown if cell.startswith("/pih/")] == [row["path"] for row in said["image"]["files"]]


def test_the_same_difference_in_every_form(layout_of, tmp_path):
    old, new = layout_of("first"), layout_of("isa")
    archive, root = tmp_path / "new.tar", tmp_path / "root"
    subprocess.run(["tar", "-C", new, "-cf", archive, "."], check=True)
    root.mkdir()
    for layer in json.loads(pih("inspect", new, "--json").stdout)["layers"]:
        blob = new / "blobs/sha256" / layer["digest"].removeprefix("sha256:")
        subprocess.run(["tar", "-C", root, "-xf", blob], check=True)
    wanted = json.loads(pih("diff", old, new, "--json").stdout)
    of_tar = json.loads(pih("diff", old, archive, "--json").stdout)
    of_root = json.loads(pih("diff", old, root, "--json").stdout)
    of_tar["new"]["where"] = wanted["new"]["where"]
    assert of_tar == wanted
    assert of_root["image"]["components"] == wanted["image"]["components"]
    assert {row["name"] for row in of_root["image"]["layers"]} == {"app", "deployment"}
    assert of_root["not_compared"] == ["compressed sizes, which are not known of an unpacked bundle"]
    lock = old.parent / "none"
    assert pih("diff", old, lock, check=False).returncode == 2


def test_a_lock_against_a_bundle(profile_of, layout_of):
    lock = profile_of("first").with_name("tiny.lock.json")
    said = pih("diff", lock, layout_of("separate")).stdout
    assert "Weights move out of the image (embed → separate).\n" in said
    assert f"not known from a lock ({lock})" in said
    refused = pih("diff", lock, layout_of("separate"), "--max-growth", "1MB", check=False)
    assert (refused.returncode, "a lock knows no sizes" in refused.stderr) == (2, True)


def test_a_bundle_against_its_own_lock_decides_the_same(profile_of, layout_of):
    lock = profile_of("first").with_name("tiny.lock.json")
    said = json.loads(pih("diff", layout_of("first"), lock, "--json").stdout)
    assert said["same"]
    assert said["sentences"] == [f"Not compared: {text}." for text in said["not_compared"]]


def test_gates_end_in_exit_code_1_and_say_why(layout_of):
    old, new = layout_of("first"), layout_of("bf16")
    gates = (
        "--max-growth",
        "1kB",
        "--max-growth",
        "50%",
        "--fail-on",
        "new-component,licence",
        "--fail-on",
        "fallback",
    )
    for form in ((), ("--json",), ("--markdown",)):
        run = pih("diff", old, new, *gates, *form, check=False)
        assert run.returncode == 1
        assert run.stderr.startswith("pih diff: --max-growth 1kB: +")
        assert "50%" not in run.stderr
        assert run.stdout
    assert len(json.loads(pih("diff", old, new, *gates, "--json", check=False).stdout)["gates"]) == 2
    assert pih("diff", new, old, *gates, check=False).returncode == 0
    assert pih("diff", old, layout_of("small"), "--fail-on", "new-component").returncode == 0
    assert (
        "health/probe is new" in pih("diff", layout_of("small"), old, "--fail-on", "new-component", check=False).stderr
    )


@pytest.mark.parametrize("arguments", [("--fail-on", "licens"), ("--max-growth", "1TB"), ("--max-growth", "")])
def test_a_gate_that_is_none(layout_of, arguments):
    run = pih("diff", layout_of("first"), layout_of("first"), *arguments, check=False)
    assert run.returncode == 2
    assert "Traceback" not in run.stderr


def test_it_takes_less_than_a_second_of_processor(layout_of):
    pih("diff", layout_of("first"), layout_of("bf16"))
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    pih("diff", layout_of("first"), layout_of("bf16"))
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 1.0


def test_layers_are_not_read_whole(layout_of, tmp_path):
    """A layer that holds no lock and no list of files is not read: its bytes may be damaged."""
    old = layout_of("first")
    copy = tmp_path / "copy"
    subprocess.run(["cp", "-r", old, copy], check=True)
    layers = json.loads(pih("inspect", old, "--json").stdout)["layers"]
    for layer in layers:
        if layer["name"] in ("base", "wheels", "weights"):
            blob = copy / "blobs/sha256" / layer["digest"].removeprefix("sha256:")
            blob.chmod(0o644)
            with blob.open("r+b") as stream:
                stream.seek(4096)
                stream.write(b"damaged")
    assert json.loads(pih("diff", old, copy, "--json").stdout)["same"]


@pytest.fixture(scope="module")
def repository(profile_of, tmp_path_factory):
    """A git repository: the first variant at tag `first`, the separate one in the working tree."""
    folder = tmp_path_factory.mktemp("repository")

    def git(*arguments):
        subprocess.run(
            ["git", "-c", "user.name=x", "-c", "user.email=x@example.com", "-C", folder, *arguments],
            check=True,
            capture_output=True,
        )

    def put(name):
        (folder / "profiles").mkdir(exist_ok=True)
        for file in ("tiny.toml", "tiny.lock.json"):
            (folder / "profiles" / file).write_bytes(profile_of(name).with_name(file).read_bytes())

    git("init", "--quiet")
    put("first")
    git("add", "-A")
    git("commit", "--quiet", "-m", "first")
    git("tag", "first")
    put("separate")
    return folder


@pytest.mark.parametrize(
    ("place", "arguments"),
    [
        (".", ("first:profiles/tiny.lock.json", "profiles/tiny.lock.json")),
        ("profiles", ("HEAD:./tiny.lock.json", "tiny.lock.json")),
        (".", ("first", "profiles/tiny.lock.json", "--profile", "profiles/tiny.toml")),
        ("profiles", ("HEAD", "tiny.lock.json", "--profile", "tiny.toml")),
        ("/", ("first", "REPOSITORY/profiles/tiny.lock.json", "--profile", "REPOSITORY/profiles/tiny.toml")),
    ],
)
def test_a_git_revisions_lock(repository, place, arguments):
    named = [text.replace("REPOSITORY", str(repository)) for text in arguments]
    before = sorted(repository.rglob("*"))
    said = json.loads(pih("diff", *named, "--json", cwd=repository / place).stdout)
    assert said["sentences"][0] == "Weights move out of the image (embed → separate)."
    assert (said["old"]["kind"], said["new"]["kind"]) == ("lock", "lock")
    assert sorted(repository.rglob("*")) == before


@pytest.mark.parametrize(
    "name",
    [
        "nowhere:profiles/tiny.lock.json", "first:profiles/none.lock.json", "first:profiles", "--output=x:y", "first",
        ":", "first:", "first:../../etc/passwd", "first^{tree}:profiles/tiny.lock.jso", "a b:c", "",
    ],
)  # fmt: skip
def test_a_revision_that_has_no_such_lock(repository, name):
    run = pih("diff", "--", name, "profiles/tiny.lock.json", cwd=repository, check=False)
    assert run.returncode in (2, 5), run.stderr
    assert "to fix" in run.stderr
    assert "Traceback" not in run.stderr


def test_a_file_in_git_that_is_no_lock(repository):
    run = pih("diff", "first:profiles/tiny.toml", "profiles/tiny.lock.json", cwd=repository, check=False)
    assert run.returncode == 5
    assert "first:profiles/tiny.toml: not JSON" in run.stderr


def test_outside_of_a_repository(tmp_path):
    run = pih("diff", "HEAD:x", ROOT / "profiles/smollm2-cpu.lock.json", cwd=tmp_path, check=False)
    assert run.returncode == 2
    assert "not a git repository" in run.stderr
